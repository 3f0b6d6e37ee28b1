"""Laws of the frames between a parent and its child: what is said is what is heard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bourn import errors
from bourn.engines.base import ModelInfo
from bourn.engines.hf.child.frames import (
    Ask,
    Cancel,
    Count,
    Counted,
    Decoder,
    Ended,
    Failed,
    Frame,
    Hello,
    Hold,
    Loading,
    Ready,
    Step,
    encode,
)
from bourn.errors import BournError, EngineError
from bourn.types import (
    Channel,
    FinishReason,
    ImagePart,
    Message,
    Piece,
    Request,
    TextPart,
    ToolCall,
)
from tests.support.any_values import (
    counts,
    failures,
    logprobs,
    numbers,
    rows,
    samplings,
    texts,
    tool_deltas,
    usages,
    whole,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, plain, max_size=3)

parts = whole(TextPart, text=texts) | whole(ImagePart, url=texts, detail=st.none() | texts)
calls = whole(ToolCall, id=texts, name=texts, arguments=texts)
messages = whole(
    Message,
    role=texts,
    content=texts | rows(parts),
    name=st.none() | texts,
    reasoning=texts,
    tool_calls=rows(calls),
    tool_call_id=st.none() | texts,
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    chat = draw(st.booleans())
    limit = draw(st.none() | st.integers(4, 2**31))
    return draw(
        whole(
            Request,
            messages=st.lists(messages, min_size=1, max_size=3).map(tuple) if chat else st.just(()),
            prompt=st.none() if chat else texts | rows(counts),
            sampling=samplings,
            max_new_tokens=st.just(limit),
            min_new_tokens=st.integers(0, 4),
            stop=rows(st.text(min_size=1, max_size=4)),
            stop_token_ids=rows(counts),
            logit_bias=st.dictionaries(counts, numbers, max_size=3),
            n=st.integers(1, 9),
            logprobs=st.none() | st.integers(0, 20),
            ignore_eos=st.booleans(),
            tools=rows(objects),
            tool_choice=st.none() | texts | objects,
            response_format=st.none() | objects,
            template_kwargs=objects,
            reuse_prompt=st.booleans(),
            engine_options=st.just({}),
        )
    )


pieces = st.builds(Piece, texts, tokens=st.just(1)) | whole(
    Piece,
    text=texts,
    channel=st.sampled_from(Channel),
    choice=st.integers(0, 9),
    tokens=counts,
    logprobs=logprobs,
    tool=st.none() | tool_deltas,
    prompt_done=st.none() | counts,
    prompt_total=st.none() | counts,
    opened=st.none() | st.sampled_from(Channel),
    finish=st.none() | st.sampled_from(FinishReason),
    usage=st.none() | usages,
)
infos = whole(
    ModelInfo,
    name=texts,
    engine=texts,
    window=st.none() | counts,
    slots=st.none() | counts,
    honours=st.frozensets(texts, max_size=3),
    defaults=samplings,
    resolves=st.booleans(),
    channels=st.none() | texts,
    calls=st.none() | texts,
    stop=rows(texts),
    chat_template=st.booleans(),
    why=st.dictionaries(texts, texts, max_size=2),
    prefills=st.booleans(),
    notice=texts,
)
ids = st.integers(0, 2**31)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, texts),
    st.builds(Ask, ids, requests()),
    st.builds(Count, ids, requests()),
    st.builds(Cancel, ids),
    st.builds(Hold, ids, st.booleans()),
    st.builds(Loading, counts, counts),
    st.builds(Ready, infos),
    st.builds(Step, rows(st.tuples(ids, pieces))),
    st.builds(Counted, ids, st.none() | counts),
    st.builds(Ended, ids),
)


def heard(data: bytes) -> list[Frame]:
    return list(Decoder().feed(data))


@given(frames)
def test_what_is_said_is_heard(frame: Frame) -> None:
    assert heard(encode(frame)) == [frame]


@given(st.lists(frames, max_size=4), st.data())
def test_cuts_change_nothing(said: Sequence[Frame], data: st.DataObject) -> None:
    whole_of_it = b"".join(map(encode, said))
    places = data.draw(st.lists(st.integers(0, len(whole_of_it)), max_size=20))
    decoder = Decoder()
    borders = [0, *sorted(places), len(whole_of_it)]
    assert [f for a, b in pairwise(borders) for f in decoder.feed(whole_of_it[a:b])] == said


@given(st.lists(frames, max_size=2), st.binary(max_size=40), frames)
def test_rubbish_is_refused_and_what_came_before_it_stays(
    said: list[Frame], rubbish: bytes, last: Frame
) -> None:
    read = []
    try:
        for frame in Decoder(10_000).feed(b"".join(map(encode, said)) + rubbish + encode(last)):
            read.append(frame)  # noqa: PERF402 (those before an error count)
    except EngineError:
        pass
    assert read[: len(said)] == said[: len(read)]


# -- errors ----------------------------------------------------------------------------------------


@given(st.none() | ids, failures())
def test_an_error_is_raised_again_as_it_was(id_: int | None, error: BournError) -> None:
    (frame,) = heard(encode(Failed(id_, error)))
    assert isinstance(frame, Failed)
    assert frame.id == id_
    assert type(frame.error) is type(error)
    assert vars(frame.error) == vars(error)
    assert str(frame.error) == str(error)
    assert errors.describe(frame.error) == errors.describe(error)
