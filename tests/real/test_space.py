"""The example of a Space as Hugging Face runs it, and the page on Gradio, with the real model."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from bourn import sync
from tests.support.serve import environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]  # it imports Gradio twice

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "examples" / "space"
SNIPPETS = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs" / "gradio.md").read_text())
QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
STORY = "Tell me a long story about a fox and a river."


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def until(is_so: Callable[[], bool]) -> None:
    """The test's timeout is the limit."""
    while not is_so():
        time.sleep(0.02)


class Space:
    """`python app.py`, once it answers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}/"
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.url}config").status_code == 200
        return False

    @property
    def busy(self) -> int:
        """How many answers the model is computing, by its own word."""
        (engine,) = psutil.Process(self._process.pid).children()
        places = (each.laddr for each in engine.net_connections("unix") if each.laddr)
        transport = httpx2.HTTPTransport(uds=next(places))
        with httpx2.Client(transport=transport, timeout=60) as client:
            return sum(slot["is_processing"] for slot in client.get("http://x/slots").json())


@pytest.fixture(scope="module")
def space(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    port, home = free_port(), tmp_path_factory.mktemp("home")
    more = {**QUIET, "GRADIO_SERVER_PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=SPACE,
        env=environment(home, more),
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            yield Space(process, port)
        finally:
            process.terminate()


@contextmanager
def visitor(url: str) -> Iterator[Any]:
    client = pytest.importorskip("gradio_client").Client(
        url, verbose=False, analytics_enabled=False
    )
    try:
        yield client
    finally:
        client.close()


def test_it_streams(space: Space) -> None:
    with visitor(space.url) as client:
        job = client.submit(STORY, "", 150, 0, 1, api_name="/respond")
        shown = [each for each in job if isinstance(each, str)]  # before it, nothing or its place
    assert len(set(shown)) > 3
    assert all(later.startswith(earlier.rstrip("\n")) for earlier, later in pairwise(shown))


def test_stop_frees_the_model_and_the_next_answer_comes(space: Space) -> None:
    with visitor(space.url) as client:
        job = client.submit(STORY, "", 2000, 0, 1, api_name="/respond")
        until(lambda: bool(job.outputs()) and bool(job.outputs()[-1]))
        assert space.busy == 1
        job.cancel()
        until(lambda: space.busy == 0)
        assert client.predict("Say hello.", "", 3, 0, 1, api_name="/respond")


def test_four_visitors_are_answered_at_once(space: Space) -> None:
    asked = (STORY, "", 2000, 0, 1)
    with visitor(space.url) as one, visitor(space.url) as two:
        jobs = [client.submit(*asked, api_name="/respond") for client in (one, two, one, two)]
        until(lambda: space.busy == 4)
        for job in jobs:
            job.cancel()
    until(lambda: space.busy == 0)


def test_its_card_is_one_of_a_space() -> None:
    card = (SPACE / "README.md").read_text()
    front = dict(re.findall(r"(?m)^(\w+): (.+)$", card.split("---")[1]))
    assert (front["sdk"], front["app_file"]) == ("gradio", "app.py")
    project = (ROOT / "pyproject.toml").read_text()
    least = re.search(r'"gradio>=([\d.]+)', project)
    assert least is not None
    assert front["sdk_version"].startswith(least[1])
    assert (SPACE / "requirements.txt").read_text() == "bourn\n"


def test_the_snippets_of_the_documentation(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is run in the order of the page, and each of its pages answers."""
    for name, value in (*QUIET.items(), ("BOURN_MAX_NEW_TOKENS", "3")):
        monkeypatch.setenv(name, value)
    gr = pytest.importorskip("gradio")
    launch, pages = gr.Blocks.launch, []

    def launch_beside(page: Any) -> None:
        launch(page, prevent_thread_lock=True, quiet=True, server_port=free_port())
        pages.append(page)

    monkeypatch.setattr(gr.Blocks, "launch", launch_beside)
    names: dict[str, Any] = {}

    async def run(code: str) -> None:  # where no loop runs Gradio makes one, and forgets it
        exec(code, names)

    try:
        for code in SNIPPETS:
            asyncio.run(run(code))
        assert len(pages) == len(SNIPPETS) == 3
        first, second, third = (page.local_url for page in pages)
        with visitor(first) as client:
            assert client.predict("Say hello.", api_name="/respond")
        with visitor(second) as client:
            assert client.predict("Say hello.", 0.5, 7, api_name="/respond")
        with visitor(third) as client:
            talk = client.predict("Say hello.", [], api_name="/say")
            assert [message["role"] for message in talk] == ["user", "assistant"]
    finally:
        for page in pages:
            page.close(verbose=False)
        for model in list(sync._models):
            model.close()
