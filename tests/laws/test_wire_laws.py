"""Laws of the wire: cuttings change nothing, and what was written is what is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bourn.types import (
    Channel,
    Delta,
    Finished,
    FinishReason,
    Piece,
    TokenLogprob,
    ToolDelta,
    Usage,
)
from bourn.wire.answers import DONE, ChunkWriter, Head, frame
from bourn.wire.reply import ReplyReader
from bourn.wire.sse import ServerSentEvent, SSEDecoder, comment, encode

# -- framing ---------------------------------------------------------------------------------------

LINES = [
    b"data: a",
    b"data:b",
    b"data",
    b"data: " + "\U0001f525\u0e2a\ufffd".encode(),
    b"event: error",
    b"event:",
    b"id: 1",
    b"id",
    b"retry: 10",
    b": ping",
    b"unknown: x",
    b"\xef\xbb\xbfdata: c",
    b"data: \xff\xf0\x9f",
    b"",
]
streams = st.lists(
    st.tuples(st.sampled_from(LINES), st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12
).map(lambda lines: b"".join(line + end for line, end in lines))


@st.composite
def cut(draw: st.DrawFn, body: bytes) -> list[bytes]:
    places = draw(st.lists(st.integers(0, len(body)), max_size=30))
    borders = [0, *sorted(places), len(body)]
    return [body[a:b] for a, b in pairwise(borders)]


def decoded(parts: Iterable[bytes]) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    return [*(event for part in parts for event in decoder.feed(part)), *decoder.flush()]


@given(st.data(), streams, st.sampled_from([b"", b"data: tail", b"\xef"]))
def test_any_cutting_gives_the_same_events(data: st.DataObject, stream: bytes, tail: bytes) -> None:
    body = stream + tail
    assert decoded(data.draw(cut(body))) == decoded([body])


texts = st.text(max_size=20)
names = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=8)


@given(st.data(), st.lists(st.tuples(texts, names, names, texts), max_size=5))
def test_events_are_read_as_they_were_written(
    data: st.DataObject, events: list[tuple[str, str, str, str]]
) -> None:
    body = b"".join(encode(text, event, id_) + comment(note) for text, event, id_, note in events)
    wanted = [
        (text.replace("\r\n", "\n").replace("\r", "\n"), event or "message", id_, None)
        for text, event, id_, _ in events
    ]
    assert decoded(data.draw(cut(body))) == wanted


# -- answers ---------------------------------------------------------------------------------------

logprobs = st.lists(
    st.builds(
        TokenLogprob,
        texts,
        st.floats(-50, 0),
        st.binary(max_size=4),
        st.lists(st.builds(TokenLogprob, texts, st.floats(-50, 0), st.binary(max_size=4))).map(
            tuple
        ),
    ),
    max_size=2,
).map(tuple)


@dataclass
class Seen:
    """What one choice said: texts by channel in their order, calls by index, logprobs, its end."""

    texts: list[tuple[Channel, str]] = field(default_factory=list)
    calls: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None

    def take(self, said: Delta | Piece) -> None:
        if said.text and self.texts and self.texts[-1][0] is said.channel:
            self.texts[-1] = (said.channel, self.texts[-1][1] + said.text)
        elif said.text:
            self.texts.append((said.channel, said.text))
        self.logprobs += said.logprobs
        if (tool := said.tool) is not None:
            id_, name, arguments = self.calls.get(tool.index, ("", "", ""))
            self.calls[tool.index] = (
                tool.id or id_,
                tool.name or name,
                arguments + tool.arguments,
            )


@st.composite
def spoken(draw: st.DrawFn, choice: int) -> list[Delta | Finished]:
    said: list[Delta | Finished] = [
        *draw(
            st.lists(
                st.builds(
                    Delta,
                    texts,
                    st.sampled_from([Channel.ANSWER, Channel.REASONING]),
                    st.just(choice),
                    logprobs=logprobs,
                ),
                max_size=5,
            )
        )
    ]
    for index, parts in enumerate(
        draw(st.lists(st.lists(texts, min_size=1, max_size=3), max_size=2))
    ):
        for place, part in enumerate(parts):
            head = ToolDelta(index, f"call_{index}", "name", part)
            tool = head if place == 0 else ToolDelta(index, arguments=part)
            said.append(Delta("", Channel.TOOL, choice, tool=tool))
    ends = [FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.TOOL_CALLS]
    return [*said, Finished(draw(st.sampled_from(ends)), choice)]


@st.composite
def answers(draw: st.DrawFn) -> tuple[int, list[Delta | Finished]]:
    """The events of up to three choices, interleaved."""
    n = draw(st.integers(1, 3))
    queues = [draw(spoken(choice)) for choice in range(n)]
    order = draw(st.permutations([choice for choice, queue in enumerate(queues) for _ in queue]))
    return n, [queues[choice].pop(0) for choice in order]


def seen_in(events: Sequence[Delta | Finished], n: int) -> list[Seen]:
    seen = [Seen() for _ in range(n)]
    for event in events:
        if isinstance(event, Finished):
            seen[event.choice].finish = event.reason
        else:
            seen[event.choice].take(event)
    return seen


@given(st.data(), answers(), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_an_answer_is_read_as_it_was_written(
    data: st.DataObject, answer: tuple[int, list[Delta | Finished]], line_end: bytes
) -> None:
    n, events = answer
    writer = ChunkWriter(Head("c", "m", 0))
    frames = [frame(chunk) for event in events for chunk in writer.chunks_of(event)]
    body = b"".join([*frames, frame(writer.usage_chunk(Usage(7, 70, 3))), DONE])
    reader = ReplyReader(n)
    pieces: list[Piece] = []
    for part in data.draw(cut(body.replace(b"\n", line_end))):
        pieces += reader.feed(part)
    pieces += reader.close()

    read = [Seen() for _ in range(n)]
    for piece in pieces:
        assert read[piece.choice].finish is None
        read[piece.choice].take(piece)
        read[piece.choice].finish = piece.finish
    assert read == seen_in(events, n)
    assert pieces[-1].usage == Usage(7, 70, 3)
