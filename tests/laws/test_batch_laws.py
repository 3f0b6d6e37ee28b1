"""Laws of a batch: each line in has one line out, whatever is in it and wherever it was ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bourn.aio import Model
from bourn.batch import Ahead, answers, jobs, opened
from bourn.engines.scripted import Script, Scripted
from bourn.settings import Settings
from bourn.types import Request

IDS = st.one_of(st.none(), st.sampled_from(["a", "b", "é\n", "3"]), st.integers(1, 12))
PROMPTS = st.sampled_from(["hi", "break", "\u0e2a 👩‍👩‍👧‍👦 \ufffd\0\n", '"}', ""])


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line of any kind: good, bad, blank, or no JSON at all."""
    kind = draw(st.sampled_from(["ours", "ours", "openai", "wrong", "broken", "blank"]))
    id_, prompt = draw(IDS), draw(PROMPTS)
    told: dict[str, Any] = {}
    match kind:
        case "ours" | "wrong":
            told = {"prompt": prompt, **({} if id_ is None else {"id": id_})}
            told |= {"temperature": "hot"} if kind == "wrong" else {}
        case "openai":
            body = {"messages": [{"role": "user", "content": prompt}]}
            told = {"body": body, **({} if id_ is None else {"custom_id": id_})}
        case "blank":
            return draw(st.sampled_from([b"\n", b"  \n"]))
        case "broken":
            return draw(
                st.sampled_from([b"{\n", b"\xff\n", b"[]\n", b'{"prompt": 1}\n', b"null\n"])
            )
    return json.dumps(told, ensure_ascii=draw(st.booleans())).encode() + b"\n"


def script(request: Request) -> Script:
    """Says what it is asked; fails where it is asked to, and with tokens that differ in number."""
    said = request.messages[-1].text
    return Script([*said], fail_at=1 if said == "break" else None)


async def run(given: list[bytes], path: Path, *, stop_after: int | None = None) -> None:
    """As the command does, but that it may be ended after so many lines."""
    async with Model(Scripted(script)) as model:
        with opened(path) as output:
            wanted = (job for job in jobs(given, Settings()) if job.id not in output.done)
            with Ahead(wanted, limit=4) as ahead:
                async with aclosing(answers(model, ahead, at_once=3)) as outcomes:
                    written = 0
                    async for outcome in outcomes:
                        if written == stop_after:
                            break
                        output.write(outcome.object("m"))
                        written += 1


def told(path: Path) -> list[tuple[str, str]]:
    """What came of each line, in no order: without times and seeds."""
    out = []
    for line in path.read_bytes().splitlines():
        one = json.loads(line)
        id_ = one.get("custom_id", one.get("id"))
        body = (one.get("response") or {}).get("body") or {}
        text = body["choices"][0]["message"]["content"] if body else one.get("text")
        error = (one.get("error") or {}).get("message")
        out.append((json.dumps(id_), json.dumps([text, error, one.get("line")])))
    return sorted(out)


@settings(max_examples=40, deadline=None)
@given(st.lists(lines(), max_size=12))
def test_each_line_in_has_one_line_out(given: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        asyncio.run(run(given, path))
        out = told(path)
        wanted = list(jobs(given, Settings()))
        assert [id_ for id_, _ in out] == sorted(json.dumps(job.id) for job in wanted)
        ids = [id_ for id_, _ in out if id_ != "null"]
        assert len(set(ids)) == len(ids)
        asyncio.run(run(given, path))
        assert told(path) == out, "again it changes nothing"


@settings(max_examples=40, deadline=None)
@given(st.lists(lines(), max_size=12), st.data())
def test_ended_anywhere_and_gone_on_with_it_is_the_same(
    given: list[bytes], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        whole, path = Path(folder) / "whole.jsonl", Path(folder) / "out.jsonl"
        asyncio.run(run(given, whole))
        for _ in range(data.draw(st.integers(1, 3))):
            asyncio.run(run(given, path, stop_after=data.draw(st.integers(0, len(given)))))
            there = path.read_bytes()  # and killed while it wrote
            share = data.draw(
                st.integers(0, 1000)
            )  # its length is not the same again: it has times
            path.write_bytes(there[: len(there) * share // 1000])
        asyncio.run(run(given, path))
        assert told(path) == told(whole)
