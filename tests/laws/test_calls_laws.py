"""Laws of tool calls: however the text is cut, the same calls come out, and nothing else is lost.

Alone, and on their way through the pipeline, beside channels, stop strings, counts and entries.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.text.calls import Hermes
from bourn.text.pipeline import Pipeline
from bourn.types import Channel, Delta, Piece, TokenLogprob, ToolDelta
from tests.text.cutting import ANSWER, HARD, REASONING, TOOL, cut
from tests.text.reading import Read, calls_of, read

law = settings(deadline=None, max_examples=100)

WORDS = st.one_of(st.text('a"\\{}[]:, \n', max_size=5), st.sampled_from(HARD))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), WORDS),
    lambda values: st.one_of(
        st.lists(values, max_size=3), st.dictionaries(WORDS, values, max_size=3)
    ),
    max_leaves=6,
)
SPACES = st.sampled_from(["", " ", "\n", " \n  "])


class Written(NamedTuple):
    """A call as a model writes it, and what is meant by it."""

    text: str
    name: str
    arguments: str


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Keys in any order, others among them, and blanks wherever JSON lets them be."""
    name = draw(st.sampled_from(["f", "get_weather", 'a "b"', "天気"]))
    arguments = json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans()))
    members = [
        ("name", json.dumps(name)),
        (draw(st.sampled_from(["arguments", "parameters"])), arguments),
    ]
    if draw(st.booleans()):
        members.append(("more", json.dumps(draw(VALUES))))
    blank = iter(draw(st.lists(SPACES, min_size=16, max_size=16)))
    told = ",".join(
        f"{next(blank)}{json.dumps(key)}{next(blank)}:{next(blank)}{value}{next(blank)}"
        for key, value in draw(st.permutations(members))
    )
    return Written(f"{next(blank)}{{{told}}}{next(blank)}", name, arguments)


@st.composite
def scratched(draw: st.DrawFn) -> str:
    """Calls in which some letters are missing, doubled, or wrong."""
    text = "".join(call.text for call in draw(st.lists(written(), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.text('{}[]":,\\ax ', max_size=2)) + text[at + 1 :]
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@law
@given(st.lists(written(), max_size=3), st.data())
def test_well_formed_calls_are_told_as_they_were_written(
    calls: list[Written], data: st.DataObject
) -> None:
    stage = Hermes()
    text = "".join(call.text for call in calls)
    told = read(stage, data.draw(cut(text)))
    assert told == Read("", [(call.name, call.arguments) for call in calls])
    assert stage.whole == len(calls)


@law
@given(scratched(), st.data())
def test_any_cutting_gives_the_same(text: str, data: st.DataObject) -> None:
    whole, pieces = Hermes(), Hermes()
    told = read(whole, [text])
    assert read(pieces, data.draw(cut(text))) == told
    assert pieces.whole == whole.whole
    assert told.calls or told.text in (text, ""), "without a call all of it is there"


@law
@given(scratched(), st.data())
def test_what_is_certain_is_not_held(text: str, data: st.DataObject) -> None:
    """An argument's letters are out as soon as they are read, once the name is known."""
    stage, so_far, tools = Hermes(), "", list[ToolDelta]()
    for piece in data.draw(cut(text)):
        so_far += piece
        tools += [part.tool for part in stage.feed(piece) if part.tool]
        again = Hermes()
        at_once = [part.tool for part in again.feed(so_far) if part.tool]
        assert calls_of(tools) == calls_of(at_once)


# -- in the pipeline -------------------------------------------------------------------------------


class Seen(NamedTuple):
    answer: str
    reasoning: str
    tool: str
    calls: list[tuple[str, str]]
    stopped: str | None
    called: bool


@st.composite
def marked(draw: st.DrawFn) -> str:
    """An answer with reasoning and calls in it, and a broken mark here and there."""
    block = scratched().map(lambda text: f"<tool_call>\n{text}\n</tool_call>")
    other = st.sampled_from(
        ["<think>hm", "</think>", "<tool_call>", "</tool_call>", "\n", "ab", "a</"]
    )
    return "".join(draw(st.lists(st.one_of(block, other, WORDS), max_size=6)))


STOPS = st.lists(st.sampled_from(["ab", "a\n", "\n\n", "<", '"', "{"]), max_size=2).map(tuple)
OPENED = st.sampled_from([None, ANSWER, REASONING, TOOL])


def ran(pipeline: Pipeline, pieces: list[Piece]) -> Seen:
    deltas, fed = list[Delta](), 0
    for piece in pieces:
        deltas += pipeline.feed(piece)
        fed += piece.tokens
        assert sum(delta.tokens for delta in deltas) + pipeline.pending_tokens == fed
    deltas += pipeline.flush()
    assert all(delta.text or delta.logprobs or delta.tool for delta in deltas)
    assert not any(delta.text and delta.tool for delta in deltas)
    texts = dict.fromkeys(Channel, "")
    for delta in deltas:
        texts[delta.channel] += delta.text
    calls = calls_of(delta.tool for delta in deltas if delta.tool)
    return Seen(
        *(texts[ANSWER], texts[REASONING], texts[TOOL], calls), pipeline.stopped, pipeline.called
    )


def opening(stop: tuple[str, ...], opened: Channel | None, *, calls: str | None) -> Pipeline:
    pipeline = Pipeline(stop, "think", calls=calls)
    if opened is not None:
        pipeline.open(opened)
    return pipeline


@law
@given(marked(), STOPS, OPENED, st.data())
def test_any_cutting_of_an_answer_gives_the_same(
    text: str, stop: tuple[str, ...], opened: Channel | None, data: st.DataObject
) -> None:
    whole = ran(opening(stop, opened, calls="hermes"), [Piece(text)])
    cuts = [Piece(piece, tokens=1) for piece in data.draw(cut(text))]
    assert ran(opening(stop, opened, calls="hermes"), cuts) == whole
    assert ran(Pipeline(stop, "think", calls="hermes", opened=opened or ANSWER), cuts) == whole
    without = ran(opening(stop, opened, calls=None), cuts)
    assert without[:2] == whole[:2], "the rest of the answer does not change"
    assert without.stopped == whole.stopped
    assert not without.calls
    # of a block that is no call nothing is lost but the blanks around it
    assert whole.calls or whole.tool.split() == without.tool.split()


@law
@given(marked(), STOPS, OPENED, st.data())
def test_each_entry_comes_once_and_in_order(
    text: str, stop: tuple[str, ...], opened: Channel | None, data: st.DataObject
) -> None:
    cuts = data.draw(cut(text))
    every = [TokenLogprob(piece, -float(place)) for place, piece in enumerate(cuts)]
    pipeline, told = opening(stop, opened, calls="hermes"), list[TokenLogprob]()
    for entry in every:
        for delta in pipeline.feed(Piece(entry.token, tokens=1, logprobs=(entry,))):
            told += delta.logprobs
    told += [entry for delta in pipeline.flush() for entry in delta.logprobs]
    assert told == every[: len(told)]
    assert pipeline.stopped or len(told) == len(every)
