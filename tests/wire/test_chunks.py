from __future__ import annotations

from typing import Any

import pytest

from bourn.errors import EngineError
from bourn.types import Channel, FinishReason, Piece, TokenLogprob, ToolDelta, Usage
from bourn.wire.chunks import ChunkReader


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def read(*chunks: dict[str, Any], top: int | None = None) -> list[Piece]:
    reader = ChunkReader(top)
    return [piece for each in chunks for piece in reader.pieces_of(each)]


def texts(pieces: list[Piece]) -> list[tuple[Channel, str]]:
    return [(piece.channel, piece.text) for piece in pieces if piece.text]


ANSWER, REASONING = Channel.ANSWER, Channel.REASONING


@pytest.mark.parametrize(
    "empty",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": ""},
        {},
        None,
        {"content": [], "tool_calls": []},
        {"reasoning_content": ""},
    ],
)
def test_a_chunk_without_news_is_no_piece(empty: dict[str, Any] | None) -> None:
    assert read(chunk(empty), chunk(empty, finish="")) == []


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_has_many_names(name: str) -> None:
    assert texts(read(chunk({name: "hm"}))) == [(REASONING, "hm")]


def test_reasoning_under_two_names_counts_once() -> None:
    pieces = read(chunk({"reasoning": "hm", "reasoning_content": "hm", "content": "yes"}))
    assert texts(pieces) == [(REASONING, "hm"), (ANSWER, "yes")]
    assert [piece.tokens for piece in pieces] == [1, 0]


def test_content_may_be_a_list_of_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    pieces = read(chunk({"content": [thinking, {"type": "text", "text": "yes"}]}))
    assert texts(pieces) == [(REASONING, "hm"), (ANSWER, "yes")]


def test_a_refusal_is_text_too() -> None:
    assert texts(read(chunk({"content": None, "refusal": "no"}))) == [(ANSWER, "no")]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("eos", FinishReason.STOP),
        ("eos_token", FinishReason.STOP),
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("STOP", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("max_tokens", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("SAFETY", FinishReason.CONTENT_FILTER),
        ("abort", FinishReason.CANCELLED),
    ],
)
def test_finish_reasons_are_mapped(said: str, reason: FinishReason) -> None:
    assert [piece.finish for piece in read(chunk({}, finish=said))] == [reason]


def test_an_answer_that_ended_in_an_error_is_one() -> None:
    with pytest.raises(EngineError):
        read(chunk({}, finish="error"))


def test_text_and_finish_in_one_chunk_are_two_pieces() -> None:
    text, finish = read(chunk({"content": "end"}, finish="length"))
    assert (text.text, text.finish, text.tokens) == ("end", None, 1)
    assert (finish.text, finish.finish, finish.tokens) == ("", FinishReason.LENGTH, 0)


def test_nothing_comes_after_a_finish() -> None:
    pieces = read(chunk({}, "stop"), chunk({"content": "late"}), chunk({}, "length"))
    assert [piece.finish for piece in pieces] == [FinishReason.STOP]


def test_choices_are_told_apart() -> None:
    both = {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}
    second = {"choices": [{"index": 1, "delta": {"content": "c"}}]}
    assert [(piece.choice, piece.text) for piece in read(both, second)] == [
        (0, "a"),
        (1, "b"),
        (1, "c"),
    ]


def test_old_completions() -> None:
    pieces = read({"choices": [{"text": "a", "index": 0, "logprobs": None, "finish_reason": None}]})
    assert texts(pieces) == [(ANSWER, "a")]


def test_a_whole_answer_is_read_like_a_chunk() -> None:
    message = {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    whole = {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 40},
    }
    pieces = read(whole)
    assert texts(pieces) == [(REASONING, "hm"), (ANSWER, "yes")]
    assert [piece.tool for piece in pieces if piece.tool] == [
        ToolDelta(0, "a", "f", "{}"),
        ToolDelta(1, "b", "g", "{}"),
    ]
    assert sum(piece.tokens for piece in pieces) == 40
    assert pieces[-1].usage == Usage(3, 40)


# -- tool calls ------------------------------------------------------------------------------------


def tool(**call: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [call]})


def calls(*chunks: dict[str, Any]) -> list[ToolDelta]:
    return [piece.tool for piece in read(*chunks) if piece.tool]


def test_the_id_comes_first_and_the_index_always() -> None:
    assert calls(
        tool(index=0, id="a", function={"name": "f", "arguments": ""}),
        tool(index=0, function={"arguments": '{"x"'}),
        tool(index=1, id="b", function={"name": "g", "arguments": None}),
        tool(index=0, function={"arguments": ": 1}"}),
    ) == [
        ToolDelta(0, "a", "f"),
        ToolDelta(0, arguments='{"x"'),
        ToolDelta(1, "b", "g"),
        ToolDelta(0, arguments=": 1}"),
    ]


@pytest.mark.parametrize("index", [{"index": 0}, {}, {"index": None}])
def test_two_calls_with_one_index_are_two(index: dict[str, Any]) -> None:
    assert calls(
        tool(**index, id="a", function={"name": "read", "arguments": '{"path": "a.rs"}'}),
        tool(**index, id="b", function={"name": "read", "arguments": '{"path": '}),
        tool(**index, function={"arguments": '"b.rs"}'}),
    ) == [
        ToolDelta(0, "a", "read", '{"path": "a.rs"}'),
        ToolDelta(1, "b", "read", '{"path": '),
        ToolDelta(1, arguments='"b.rs"}'),
    ]


def test_an_id_and_a_name_that_are_repeated_are_told_once() -> None:
    part = {"name": "f", "arguments": "1"}
    assert calls(tool(index=0, id="a", function=part), tool(index=0, id="a", function=part)) == [
        ToolDelta(0, "a", "f", "1"),
        ToolDelta(0, arguments="1"),
    ]


def test_a_name_may_come_after_the_id() -> None:
    assert calls(tool(index=0, id="a"), tool(index=0, function={"name": "f"})) == [
        ToolDelta(0, "a"),
        ToolDelta(0, name="f"),
    ]


def test_a_call_without_an_id_gets_one() -> None:
    first, second = calls(
        tool(index=0, function={"name": "f", "arguments": {"x": "é"}}),
        tool(index=1, function={"name": "g"}),
    )
    assert first.id
    assert second.id
    assert first.id != second.id
    assert first.arguments == '{"x": "é"}'


def test_a_stop_after_tool_calls_means_tool_calls_but_a_cut_does_not() -> None:
    call = tool(index=0, id="a", function={"name": "f"})
    assert read(call, chunk({}, "stop"))[-1].finish is FinishReason.TOOL_CALLS
    assert read(call, chunk({}, "length"))[-1].finish is FinishReason.LENGTH


# -- logprobs --------------------------------------------------------------------------------------


def test_logprobs_with_bytes_and_alternatives() -> None:
    near = [{"token": "a", "bytes": [97], "logprob": -0.1}, {"token": "b", "logprob": -3.0}]
    entry = {"token": "\ufffd", "bytes": [240, 159], "logprob": -0.5, "top_logprobs": near}
    told = chunk({"content": "x"})
    told["choices"][0]["logprobs"] = {"content": [entry]}
    alternatives = (TokenLogprob("a", -0.1, b"a"), TokenLogprob("b", -3.0, b"b"))
    for top, kept in [(None, 2), (2, 2), (1, 1), (0, 0)]:
        (piece,) = read(told, top=top)
        assert piece.logprobs == (TokenLogprob("\ufffd", -0.5, b"\xf0\x9f", alternatives[:kept]),)


def test_logprobs_without_text_are_kept() -> None:
    told = chunk({"content": ""})
    told["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": None, "bytes": None}]}
    (piece,) = read(told)
    assert (piece.text, piece.tokens) == ("", 1)
    assert piece.logprobs == (TokenLogprob("x", -9999.0, b"x"),)


def test_logprobs_of_old_completions() -> None:
    told = {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.1, -0.2],
        "top_logprobs": [{"a": -0.1, "c": -2.0}, None],
    }
    (piece,) = read({"choices": [{"text": "ab", "index": 0, "logprobs": told}]})
    assert piece.tokens == 2
    assert piece.logprobs == (
        TokenLogprob(
            "a", -0.1, b"a", (TokenLogprob("a", -0.1, b"a"), TokenLogprob("c", -2.0, b"c"))
        ),
        TokenLogprob("b", -0.2, b"b"),
    )


# -- counts ----------------------------------------------------------------------------------------


def timed(n: int) -> dict[str, Any]:
    return {"timings": {"cache_n": 30, "prompt_n": 2, "predicted_n": n}}


def final(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return {"choices": [], "usage": usage}


def test_without_counts_each_text_is_a_token_and_the_sum_an_estimate() -> None:
    pieces = read(chunk({"content": "a"}), chunk({"content": ""}), chunk({"content": "b"}))
    assert [piece.tokens for piece in pieces] == [1, 1]
    assert pieces[-1].usage == Usage(0, 2, estimated=True)


def test_the_last_usage_wins_over_the_estimate() -> None:
    reader = ChunkReader()
    reader.pieces_of(chunk({"content": "a b c"}))
    details = {"cached_tokens": 4}
    assert reader.pieces_of(final(9, 3, prompt_tokens_details=details)) == []
    assert reader.usage == Usage(9, 3, 4)


def test_timings_count_what_is_not_visible() -> None:
    pieces = read(chunk({"content": "\U0001f525"}, **timed(3)), chunk({"content": "!"}, **timed(4)))
    assert [piece.tokens for piece in pieces] == [3, 1]
    assert [piece.usage for piece in pieces] == [Usage(32, 3, 30), Usage(32, 4, 30)]


def test_tokens_after_the_last_text_belong_to_the_finish() -> None:
    pieces = read(chunk({"content": "a"}, **timed(1)), chunk({}, "length", **timed(3)))
    assert [piece.tokens for piece in pieces] == [1, 2]


def test_timings_of_several_choices_are_added_up() -> None:
    reader = ChunkReader()
    for index, count in [(0, 1), (1, 1), (0, 2), (1, 2)]:
        told = chunk({"content": "x"}, **timed(count))
        told["choices"][0]["index"] = index
        reader.pieces_of(told)
    reader.pieces_of(final(32, 2) | timed(2))  # what llama.cpp tells is of one of them
    assert reader.usage == Usage(32, 4, 30)


def test_continuous_usage_counts() -> None:
    told = [
        chunk({"content": "a"}, usage={"prompt_tokens": 7, "completion_tokens": 2}),
        chunk({"content": "b"}, usage={"prompt_tokens": 7, "completion_tokens": 3}),
        chunk({}, "stop", usage={"prompt_tokens": 7, "completion_tokens": 4}),
        final(7, 4),
    ]
    pieces = read(*told)
    assert [piece.tokens for piece in pieces] == [2, 1, 1]
    assert pieces[-1].usage == Usage(7, 4)


def test_a_count_of_nothing_beside_text_is_no_count() -> None:
    (piece,) = read(chunk({"content": "a"}, usage={"prompt_tokens": 0, "completion_tokens": 0}))
    assert (piece.tokens, piece.usage) == (1, Usage(0, 1, estimated=True))


def test_null_usage_is_none() -> None:
    (piece,) = read(chunk({"content": "a"}, usage=None))
    assert piece.usage == Usage(0, 1, estimated=True)


def test_progress_of_the_prompt() -> None:
    told = chunk({"role": "assistant", "content": None}, **timed(0))
    told["prompt_progress"] = {"total": 32, "cache": 0, "processed": 8, "time_ms": 4}
    assert read(told) == [Piece(prompt_done=8, prompt_total=32)]
