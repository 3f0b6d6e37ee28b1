"""A hub of one's own: speaks as much of Hugging Face's HTTP as fetching a model takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """files: contents by repository and name. refusals: status and error code by part of a path."""

    files: Mapping[str, Mapping[str, bytes]]
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def fake_hub(files: Mapping[str, Mapping[str, bytes]]) -> Iterator[FakeHub]:
    hub = FakeHub(files)

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: FakeHub

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Tell nothing on stderr."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.served.asked.append(f"{self.command} {self.path}")
        for part, (status, code) in self.served.refusals.items():
            if part in self.path:
                return self._answer(status, b"{}", {"X-Error-Code": code} if code else {})
        path = self.path.partition("?")[0].strip("/")
        return self._info(path) if path.startswith("api/models/") else self._file(path)

    def _info(self, path: str) -> None:
        repo = "/".join(path.split("/")[2:4])
        if repo not in self.served.files:
            return self._answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        listed = [{"rfilename": name} for name in self.served.files[repo]]
        told = {"id": repo, "sha": COMMIT, "siblings": listed}
        return self._answer(200, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def _file(self, path: str) -> None:
        repo, _, rest = path.partition("/resolve/")
        content = self.served.files.get(repo, {}).get(rest.partition("/")[2])
        if content is None:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        etag = sha256(content).hexdigest()
        return self._answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
