"""A server with the page, whose model says what the question is about: `python -m … PORT FILE`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bourn.engines.scripted import Script, Scripted
from bourn.errors import EngineCrashed
from bourn.server.app import application
from bourn.server.config import ServerConfig, WebConfig
from bourn.server.fleet import Fleet, Offer
from bourn.server.life import live
from bourn.server.listening import listen
from bourn.server.standby import Standby
from bourn.types import Channel, Piece, Request
from bourn.web.mount import site

ELSEWHERE = "http://127.0.0.1:9"
"""Where a hostile answer wants to reach. Nothing is there."""

RICH = """# Rivers

A **river** has $E = mc^2$ and \\(a_1\\), and

$$\\int_0^1 x^2 dx = \\frac{1}{3}$$

| stream | length |
|---|---|
| Rhine | 1,233 km |

```python
def flow(x):
    return 2 * x
```
"""

HOSTILE = f"""<script>window.owned = "script"</script>

![call]({ELSEWHERE}/home.png) and <img src="{ELSEWHERE}/again.png" onerror="window.owned = 'image'">

[go](javascript:window.owned='link') <a href="javascript:window.owned='anchor'">there</a>

<svg onload="window.owned = 'svg'"></svg><iframe src="{ELSEWHERE}/frame"></iframe>
<link rel="stylesheet" href="{ELSEWHERE}/style.css"><style>body {{ display: none }}</style>
<form action="{ELSEWHERE}/form"><input id="phish" name="key"><button>Log in</button></form>
<div id="cover" style="position: fixed; inset: 0; z-index: 9999; background: red">cover</div>
![out](/logout) <audio src="/logout" autoplay></audio> <b id="stop">Stop</b>
<form name="querySelector"></form> <dialog open>wait</dialog>

After it."""

ODD = "\ud83d <think>so</think> List<String>, $5 and $6, $a_1$"
"""Half a character, tags that are none, and prices beside a formula."""

WIDE = f"""`{"code" * 100}` https://example.org/{"a" * 300} {"word" * 100}

{"| column " * 14}|
{"|---" * 14}|
{"| value " * 14}|

$$ {"x + " * 60} y $$
"""

FOX = "The quick brown fox jumps over the lazy dog. "


def words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def script(request: Request) -> Script:
    asked = request.messages[-1].text
    thoughts = [Piece(word, Channel.REASONING, tokens=1) for word in words("Let me see. " * 10)]
    told: dict[str, tuple[Sequence[str | Piece], dict[str, object]]] = {
        "rich": (words(RICH), {"delay": 0.01}),
        "hostile": ([HOSTILE], {}),
        "odd": ([ODD], {}),
        "wide": ([WIDE], {}),
        "think": ([*thoughts, *words("It is 42. " * 10)], {"delay": 0.03}),
        "crash": (words(FOX), {"fail_at": 5, "error": EngineCrashed("the engine died")}),
        "bug": (words(FOX), {"fail_at": 2, "error": RuntimeError("a secret")}),
        "prompt": (["Read."], {"prompt": 1000, "prompt_steps": 50, "prompt_delay": 0.1}),
        "long": (words(FOX * 400), {"delay": 0.02}),
    }
    pieces, more = next((told[name] for name in told if name in asked), (words(FOX), {}))
    return Script(pieces, **more)  # type: ignore[arg-type]


async def main(port: int, file: Path) -> None:
    fleet = Fleet([Offer(Standby("told", lambda _: Scripted(script, slots=2)))])
    config = ServerConfig(port=port)
    app = application(fleet, config, site(fleet, config, WebConfig(conversations=file)))
    listener = listen(config.host, port)

    def announce() -> None:
        print(f"listens at {listener.url}", file=sys.stderr, flush=True)

    await live(app, fleet, config, listener, announce)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
