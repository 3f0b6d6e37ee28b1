"""The quick way to write an answer's frames says what the slow way says."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bourn.types import Channel, Delta, Done, Event, TokenLogprob, ToolDelta
from bourn.wire.answers import ChunkWriter, Head
from bourn.wire.frames import Frames

CHAT = Head("chatcmpl-1.2", 'a "model"', 1_800_000_000)
TEXT = Head("cmpl-1.2", "m", 1_800_000_000, chat=False)

texts = st.text(max_size=8) | st.sampled_from(["\n", '"', "\\", "\0", "é🔥", "\u2028", "</s>"])
logprobs = st.just(TokenLogprob("a", -0.5, b"a"))
deltas = st.builds(
    Delta,
    texts.filter(bool),
    st.sampled_from([Channel.ANSWER, Channel.REASONING, Channel.TOOL]),
    st.integers(0, 2),
    logprobs=st.lists(logprobs, max_size=1).map(tuple),
)
calls = st.builds(
    Delta,
    st.just(""),
    st.just(Channel.TOOL),
    st.integers(0, 2),
    tool=st.just(ToolDelta(0, "c", "f", "{}")),
)


@given(st.lists(deltas | calls, max_size=12), st.sampled_from([CHAT, TEXT]))
def test_the_quick_way_says_what_the_chunks_say(events: list[Delta], head: Head) -> None:
    writer = ChunkWriter(head)
    chunks = [chunk for event in events for chunk in writer.chunks_of(event)]
    frames = Frames(head)
    whole: list[Event] = [*events, Done("complete")]
    text = "".join(frames.frames_of(number, event) for number, event in enumerate(whole, 1))
    *data, end = [block.rpartition("data: ")[2] for block in text.split("\n\n")[:-1]]
    assert [json.loads(each) for each in data] == chunks
    assert end == "[DONE]"
    assert "\r" not in text
