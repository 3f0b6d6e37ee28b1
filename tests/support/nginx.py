"""nginx before a server, with the very configuration that the documentation shows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "serving.md"

# What a system may have around it: gzip for everything is the worst of that.
_AROUND = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log info;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip on;
    gzip_types *;
    gzip_proxied any;
    gzip_min_length 1;
{site}
}}
"""


@contextmanager
def proxying(
    program: Path, upstream: str, folder: Path, changes: Mapping[str, str] = {}
) -> Iterator[str]:
    """nginx, and its address, before `upstream`: `127.0.0.1:8000`, or `unix:/path`.

    folder: for its files. changes: lines of the documentation, and what stands there instead.
    """
    port = _free_port()
    places = {
        "server 127.0.0.1:8000;": f"server {upstream};",
        "listen 443 ssl;": f"listen 127.0.0.1:{port};",
        "ssl_certificate /etc/ssl/llm.example.org.pem;": "",
        "ssl_certificate_key /etc/ssl/llm.example.org.key;": "",
    }
    site = _site({**places, **changes})
    # its workers would else be of a user who may not see that folder
    user = "user root;" if os.getuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(_AROUND.format(user=user, folder=folder, site=site))
    command: list[str | Path] = [program, "-c", configuration, "-e", folder / "nginx.log"]
    with subprocess.Popen(command) as process:
        try:
            _wait_for(process, port, folder)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def _site(changes: Mapping[str, str]) -> str:
    """The documentation's block, with these changes."""
    blocks: list[str] = re.findall(r"(?ms)^```nginx\n(.*?)^```$", DOCUMENT.read_text("utf-8"))
    (site,) = blocks
    for old, new in changes.items():
        assert site.count(old) == 1, old
        site = site.replace(old, new)
    return site


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def _wait_for(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    end = time.monotonic() + 20
    while True:
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError((folder / "nginx.log").read_text())
        time.sleep(0.02)
