from __future__ import annotations

import pytest

from bourn.text.pipeline import Pipeline
from bourn.types import Channel, Delta, Piece, TokenLogprob, ToolDelta
from tests.text.cutting import ANSWER, REASONING, TOOL, sized

A, B, C, D = (TokenLogprob(name, -1.0) for name in "abcd")


def entry(token: str) -> TokenLogprob:
    return TokenLogprob(token, -0.5, token.encode())


def tokens_of(*texts: str) -> list[Piece]:
    """One piece a token, with its entry."""
    return [Piece(text, tokens=1, logprobs=(entry(text),)) for text in texts]


def fed(pipeline: Pipeline, pieces: list[Piece]) -> list[Delta]:
    return [delta for piece in pieces for delta in pipeline.feed(piece)]


def names(deltas: list[Delta]) -> list[str]:
    return [entry.token for delta in deltas for entry in delta.logprobs]


def test_without_anything_to_look_for_a_piece_is_a_delta() -> None:
    piece = Piece("hm", REASONING, choice=2, tokens=3)
    assert Pipeline().feed(piece) == [Delta("hm", REASONING, 2, 3)]
    assert Pipeline().flush() == []


def test_channels_then_stops() -> None:
    pipeline = Pipeline(("END",), "think")
    deltas = fed(pipeline, [Piece("<think>the END?</think>", tokens=5), Piece("yes EN", tokens=2)])
    assert deltas == [Delta("the END?", REASONING, tokens=5), Delta("yes ", tokens=2)]
    assert pipeline.feed(Piece("D", tokens=1)) == []
    assert pipeline.stopped == "END"


def test_the_prompt_may_have_opened_the_reasoning() -> None:
    pipeline = Pipeline((), "think", opened=Channel.REASONING)
    assert fed(pipeline, [Piece("hm</think>Hi")]) == [Delta("hm", REASONING), Delta("Hi")]


def test_a_stop_is_not_made_of_a_mark() -> None:
    pipeline = Pipeline(("<", "think"), "think")
    assert fed(pipeline, [Piece("<thi"), Piece("nk>a < b")]) == [Delta("a < b", REASONING)]
    assert pipeline.stopped is None


def test_what_the_channels_release_goes_through_the_stops() -> None:
    pipeline = Pipeline(("<|sep|>",), "harmony")
    assert fed(pipeline, [Piece("a <|s"), Piece("ep|"), Piece("> b")]) == [Delta("a ")]
    assert pipeline.stopped == "<|sep|>"


def test_at_the_end_it_goes_through_the_stops_too() -> None:
    pipeline = Pipeline(("<",), "think")
    assert fed(pipeline, [Piece("a <")]) == [Delta("a ")]
    assert pipeline.stopped is None
    assert pipeline.flush() == []
    assert pipeline.stopped == "<"


def test_at_a_natural_end_all_that_was_held_comes() -> None:
    pipeline = Pipeline(("</s>",), "think")
    assert fed(pipeline, [Piece("a</", tokens=2)]) == [Delta("a", tokens=2)]
    assert pipeline.flush() == [Delta("</")]
    assert pipeline.flush() == []


def test_after_a_stop_nothing_comes_but_tokens_are_counted() -> None:
    pipeline = Pipeline(("END",))
    assert fed(pipeline, [Piece("a END b", tokens=4, logprobs=(A,))]) == [
        Delta("a ", tokens=4, logprobs=(A,))
    ]
    late = Piece("more", tokens=3, logprobs=(B,), tool=ToolDelta(0))
    assert pipeline.feed(late) == []
    assert pipeline.pending_tokens == 3
    assert pipeline.flush() == []


def test_tokens_without_text_wait_for_the_next_delta() -> None:
    pipeline = Pipeline()
    assert pipeline.feed(Piece(tokens=2)) == []
    assert pipeline.pending_tokens == 2
    assert pipeline.feed(Piece("🔥", tokens=1)) == [Delta("🔥", tokens=3)]
    assert pipeline.pending_tokens == 0


def test_tokens_of_a_mark_are_counted_with_what_follows() -> None:
    pipeline = Pipeline((), "think")
    deltas = fed(
        pipeline, [Piece("<think>", tokens=1), Piece("\n", tokens=1), Piece("a", tokens=1)]
    )
    assert deltas == [Delta("a", REASONING, tokens=3)]


def test_tokens_that_nothing_follows_stay_pending() -> None:
    pipeline = Pipeline((), "think")
    assert fed(pipeline, [Piece("<think>", tokens=1), Piece("</think>", tokens=1)]) == []
    assert pipeline.flush() == []
    assert pipeline.pending_tokens == 2


def test_a_tool_delta_passes() -> None:
    call = ToolDelta(0, "call_1", "find", '{"q"')
    piece = Piece(tool=call, channel=TOOL, tokens=4, choice=1)
    for pipeline in (Pipeline(), Pipeline(("x",), "think")):
        assert pipeline.feed(piece) == [Delta("", TOOL, 1, 4, tool=call)]


def test_a_tool_delta_comes_after_the_text_before_it() -> None:
    call = ToolDelta(0, "call_1", "find")
    pipeline = Pipeline((), "think")
    deltas = fed(pipeline, [Piece("a <", tokens=1), Piece("th", tokens=1, tool=call)])
    assert deltas == [
        Delta("a ", tokens=1),
        Delta("<th", tokens=1),
        Delta("", TOOL, tool=call),
    ]


def test_a_tool_delta_after_a_stop_is_dropped() -> None:
    for given, stop in (("a END", "END"), ("a <", "<")):
        pipeline = Pipeline((stop,), "think")
        assert pipeline.feed(Piece(given, tool=ToolDelta(0))) == [Delta("a ")]
        assert pipeline.stopped == stop


CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def test_calls_are_read_between_channels_and_stops() -> None:
    pipeline = Pipeline(("END", "a"), "think", calls="hermes")
    deltas = fed(
        pipeline, [*tokens_of("So:\n", *CALL[:-12]), Piece("</tool_call>Hm. EN", tokens=2)]
    )
    assert deltas[0] == Delta("So:\n", tokens=1, logprobs=(entry("So:\n"),))
    first, *others = [delta.tool for delta in deltas if delta.tool]
    assert (first.index, first.name, first.arguments) == (0, "f", "{")
    assert first.id
    assert "".join(tool.arguments for tool in others) == '"a": 1}'
    assert "".join(names(deltas)) == "So:\n" + CALL[:-12]
    assert deltas[-1] == Delta("Hm. ", tokens=3, logprobs=(entry("}"),))
    assert pipeline.called
    assert pipeline.flush() == [Delta("EN")]


def test_a_block_that_is_never_closed_ends_where_the_next_begins() -> None:
    pipeline = Pipeline((), "think", calls="hermes")
    deltas = fed(pipeline, [Piece(CALL.replace("}}", "}") + CALL)])
    deltas += fed(pipeline, [Piece("<tool_call>{oops</tool_call><tool_call>{x</tool_call>Hm.")])
    told = [(d.tool.index, d.tool.arguments) if d.tool else d.text for d in deltas]
    assert told == [(0, '{"a": 1}'), (1, '{"a": 1}'), "\n{oops", "\n{x", "Hm."]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_call_after_a_stop_is_none(size: int) -> None:
    pipeline = Pipeline(("END",), "think", calls="hermes")
    deltas = fed(pipeline, [Piece(text) for text in sized(f"a END{CALL}<tool_call>{{", size)])
    assert "".join(delta.text for delta in [*deltas, *pipeline.flush()]) == "a "
    assert not any(delta.tool for delta in deltas)
    assert not pipeline.called


def test_without_a_notation_calls_stay_text() -> None:
    pipeline = Pipeline((), "think")
    (delta,) = fed(pipeline, [Piece(CALL)])
    assert (delta.channel, delta.tool, delta.text[:8]) == (TOOL, None, '{"name":')
    assert not pipeline.called


def test_text_that_the_engine_labels_as_calls_is_read_too() -> None:
    pipeline = Pipeline(calls="hermes")
    deltas = fed(pipeline, [Piece("Well. "), Piece('{"name": "f"}', TOOL), Piece("{", TOOL)])
    assert [delta.text or (delta.tool and delta.tool.name) for delta in deltas] == ["Well. ", "f"]
    assert pipeline.flush() == [Delta("{", TOOL)]


def test_entries_come_with_their_text() -> None:
    deltas = fed(Pipeline(), tokens_of("Hel", "lo"))
    assert deltas == [
        Delta("Hel", tokens=1, logprobs=(entry("Hel"),)),
        Delta("lo", tokens=1, logprobs=(entry("lo"),)),
    ]


def test_entries_of_half_a_character_come_with_the_whole() -> None:
    halves = [Piece("", tokens=1, logprobs=(A,)), Piece("🔥", tokens=1, logprobs=(B,))]
    assert fed(Pipeline(), halves) == [Delta("🔥", tokens=2, logprobs=(A, B))]


def test_entries_wait_while_their_text_is_held() -> None:
    pipeline = Pipeline(("Helloxxx",))
    steps = [pipeline.feed(piece) for piece in tokens_of("He", "llo", "x", " you", "!")]
    assert [names(step) for step in steps] == [[], [], [], ["He", "llo", "x", " you"], ["!"]]


def test_an_entry_waits_though_its_neighbour_in_the_piece_comes() -> None:
    pipeline = Pipeline((), "think", opened=Channel.REASONING)
    piece = Piece("hm<", tokens=2, logprobs=(entry("hm"), entry("<")))
    assert pipeline.feed(piece) == [Delta("hm", REASONING, tokens=2, logprobs=(entry("hm"),))]
    assert pipeline.flush() == [Delta("<", REASONING, logprobs=(entry("<"),))]


def test_entries_inside_a_stop_are_dropped() -> None:
    pipeline = Pipeline(("Helloxxx",))
    deltas = fed(pipeline, tokens_of("a ", "say He", "llo", "xxx", "b"))
    assert "".join(delta.text for delta in deltas) == "a say "
    assert names(deltas) == ["a ", "say He"]
    assert pipeline.flush() == []


def test_a_token_that_begins_before_the_stop_keeps_its_entry() -> None:
    pipeline = Pipeline(("Pari",))
    deltas = fed(pipeline, tokens_of("is", " Par", "is"))
    assert deltas[-1].text == " "
    assert names(deltas) == ["is", " Par"]


def test_several_tokens_in_one_piece() -> None:
    pipeline = Pipeline(("c",))
    piece = Piece("abcd", tokens=4, logprobs=(A, B, C, D))
    assert pipeline.feed(piece) == [Delta("ab", tokens=4, logprobs=(A, B))]


def test_half_characters_are_longer_as_tokens_than_as_text() -> None:
    half = TokenLogprob("\ufffd", -1.0, b"\xf0\x9f")
    deltas = Pipeline().feed(Piece("🔥", tokens=2, logprobs=(half, half)))
    assert deltas == [Delta("🔥", tokens=2, logprobs=(half, half))]


def test_entries_of_a_mark_come_in_their_order() -> None:
    pipeline = Pipeline((), "think")
    deltas = fed(pipeline, tokens_of("<", "think", ">", "hm", "</think>", "\n\n", "Hi"))
    assert [(delta.text, names([delta])) for delta in deltas] == [
        ("hm", ["<", "think", ">", "hm"]),
        ("Hi", ["</think>", "\n\n", "Hi"]),
    ]


def test_a_mark_before_a_stop_keeps_its_entry() -> None:
    pipeline = Pipeline(("END",), "think")
    deltas = fed(pipeline, tokens_of("<think>", "hm", "</think>", "EN", "D"))
    assert names(deltas) == ["<think>", "hm", "</think>"]
    assert deltas[-1] == Delta("", tokens=3, logprobs=(entry("</think>"),))


def test_entries_that_no_text_follows_come_at_the_end() -> None:
    pipeline = Pipeline(("x!",))
    assert names(fed(pipeline, tokens_of("a", "x"))) == ["a"]
    end = Piece("", tokens=1, logprobs=(D,))
    assert pipeline.feed(end) == []
    assert pipeline.flush() == [Delta("x", tokens=2, logprobs=(entry("x"), D))]


def test_without_any_text_entries_make_a_delta_of_their_own() -> None:
    pipeline = Pipeline()
    assert pipeline.feed(Piece("", tokens=1, logprobs=(D,), choice=3)) == []
    assert pipeline.flush() == [Delta("", choice=3, tokens=1, logprobs=(D,))]


def test_entries_of_other_channels_keep_the_order() -> None:
    """While the answer is held, an entry of the reasoning waits, though its text does not."""
    pipeline = Pipeline(("END",))
    given = [
        Piece("E", ANSWER, logprobs=(A,)),
        Piece("hm", REASONING, logprobs=(B,)),
        Piece("gg", ANSWER, logprobs=(C,)),
    ]
    assert fed(pipeline, given) == [
        Delta("hm", REASONING),
        Delta("Egg", logprobs=(A, B, C)),
    ]


@pytest.mark.parametrize("args", [((), None), (("\nUser:", "</s>"), "think")])
def test_long_answers_are_linear_work(args: tuple[tuple[str, ...], str | None]) -> None:
    pipeline = Pipeline(*args)
    deltas = [delta for _ in range(50_000) for delta in pipeline.feed(Piece("\na<", tokens=1))]
    deltas += pipeline.flush()
    assert "".join(delta.text for delta in deltas) == "\na<" * 50_000
    assert sum(delta.tokens for delta in deltas) + pipeline.pending_tokens == 50_000
