"""What a model says to one short question, and what is found in that."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from bourn.doctor.finding import Finding, State, run
from bourn.doctor.live import BEGINNING, CHECKS, LIMIT, QUESTION, Heard, ask, examine
from bourn.engines.base import Engine
from bourn.engines.scripted import Script, Scripted
from bourn.errors import LoadFailed
from bourn.settings import Settings
from bourn.types import FinishReason, Metrics, Piece, Request

STOP = FinishReason.STOP


class Asked(Scripted):
    """Remembers what it was asked."""

    def __init__(self, *pieces: str, **facts: object) -> None:
        super().__init__(Script(pieces), **facts)
        self.requests: list[Request] = []

    async def generate(self, request: Request) -> AsyncGenerator[Piece, None]:
        self.requests.append(request)
        async for piece in super().generate(request):
            yield piece


async def examined(engine: Engine, *marks: str) -> dict[str, Finding]:
    return {
        each.check: each async for each in examine(lambda: engine, Settings(), frozenset(marks))
    }


def found(heard: Heard) -> dict[str, Finding]:
    return {each.check: each for each in run(CHECKS, heard)}


async def test_one_that_stops() -> None:
    told = await examined(Asked("Paris", "."))
    assert {each.state for each in told.values()} == {State.OK}
    assert told["stops by itself"].found == "after 2 tokens"
    assert told["clean text"].found == "“Paris.”"
    assert "first token after" in told["speed"].found
    assert "tokens/s" in told["speed"].found


async def test_it_is_asked_greedily_and_the_users_own_settings_do_not_matter() -> None:
    engine = Asked("Paris")
    own = Settings(system="Talk for ever.", stop=("a",), temperature=2.0, max_new_tokens=9999)
    await ask(lambda: engine, own)
    (request,) = engine.requests
    assert [each.text for each in request.messages] == [QUESTION]
    assert (request.sampling.temperature, request.max_new_tokens, request.stop) == (0.0, LIMIT, ())


async def test_one_that_does_not_stop() -> None:
    told = await examined(Asked(*["on "] * (LIMIT + 50)))
    assert told["stops by itself"].state is State.BROKEN
    assert f"after {LIMIT} tokens" in told["stops by itself"].found


async def test_one_without_a_template_goes_on_with_a_text_and_need_not_stop() -> None:
    engine = Asked(*["on "] * (LIMIT + 50), chat_template=False)
    told = await examined(engine)
    assert engine.requests[0].prompt == BEGINNING
    assert told["stops by itself"].state is State.NOTE


async def test_one_that_fails() -> None:
    told = await examined(Scripted(Script(["a"], fail_at=1, error=LoadFailed("no memory"))))
    assert told["stops by itself"].state is State.BROKEN
    assert told["stops by itself"].found == "it fails: no memory"
    assert told["speed"].state is told["clean text"].state is State.SKIPPED


async def test_one_that_cannot_be_loaded() -> None:
    def fail() -> Engine:
        raise LoadFailed("the file is damaged", hint="download it again")

    heard = await ask(fail, Settings())
    assert found(heard)["stops by itself"].mend == "download it again"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Paris.<|im_end|>\n<|im_start|>user", "'<|im_end|>'"),
        ("Paris. <turn_over>", "'<turn_over>'"),
        ("Paris. [/INST]", "'[/INST]'"),
        ("Paris.<end_of_turn>", "'<end_of_turn>'"),
        ("Paris.\nuser\nAnd Spain?", "as somebody else: 'user'"),
        ("Paris.\n\n### Instruction:\nAnd Spain?", "as somebody else: '### Instruction:'"),
        ("Paris. assistant\n\nParis.", ""),
        ("A user\nmay ask; an assistant says: Paris.", ""),
        ("Par\ufffds", "broken characters"),
        ("The <b>capital</b> of [France] is Paris, #1.", ""),
    ],
)
def test_text_that_no_reader_should_see(text: str, said: str) -> None:
    finding = found(Heard(text, STOP, marks=frozenset({"<turn_over>"})))["clean text"]
    assert finding.state is (State.WARNING if said else State.OK)
    assert said in finding.found


def test_speed_of_nothing() -> None:
    assert found(Heard("", STOP, Metrics()))["speed"].state is State.SKIPPED
