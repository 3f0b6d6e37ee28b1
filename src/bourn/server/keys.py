"""Who may ask, and as whom: API keys, none of which is ever shown, logged, or kept as it is."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bourn.errors import SettingsError, Unauthorized
from bourn.server.asgi import METRICS, headers, is_guarded, refuse, route
from bourn.server.config import ServerConfig
from bourn.wire.answers import error_object

OWNER = "bourn.owner"
"""Where the scope tells whose request it is: "" where there are no keys."""

VARIABLE = "BOURN_API_KEYS"


class Keys:
    """Lets in who shows one of the server's keys, on every route but those for everybody.

    A key comes as `Authorization: Bearer`, `api-key` or `x-api-key`, as OpenAI's, Azure's and
    Anthropic's SDKs send it. `/metrics` has a key of its own where the server has one, which opens
    nothing else. Without keys everybody is let in, as owner "".
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._keys = KeyRing(config.keys)
        self._metrics = KeyRing({config.metrics_key} if config.metrics_key else config.keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_guarded(scope):
            path = route(scope)
            metrics = path == METRICS or path.startswith(f"{METRICS}/")
            ring = self._metrics if metrics else self._keys
            shown = _shown(scope)
            owner = ring.owner(shown) if ring else ""
            if owner is None:
                await refuse(_refusal(given=bool(shown)), scope, receive, send)
                return
            scope[OWNER] = owner
        await self._app(scope, receive, send)


class KeyRing:
    """Keys, of which only digests are kept.

    What is compared is digests under a secret of this object, and always all of them: how long it
    takes tells nothing of a key.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._secret = secrets.token_bytes(32)
        self._owners = {self._digest(key): owner_of(key) for key in keys}

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, shown: Iterable[str]) -> str | None:
        """Whose keys these are; None where none of them is here."""
        found = None
        for key in shown:
            digest = self._digest(key)
            for known, owner in self._owners.items():
                if hmac.compare_digest(digest, known):
                    found = owner
        return found

    def _digest(self, key: str) -> bytes:
        return blake2b(key.encode(), key=self._secret).digest()


def owner_of(key: str) -> str:
    """The name by which whoever has this key is known: the same in every run."""
    return blake2b(key.encode(), digest_size=8, person=b"bourn owner").hexdigest()


def _shown(scope: Scope) -> list[str]:
    """The keys that a request shows."""
    split = [value.partition(" ") for value in headers(scope, b"authorization")]
    bearers = [key for scheme, _, key in split if scheme.lower() == "bearer"]
    shown = [*bearers, *headers(scope, b"api-key"), *headers(scope, b"x-api-key")]
    return [key for key in map(str.strip, shown) if key]


def _refusal(*, given: bool) -> JSONResponse:
    if given:
        error = Unauthorized("this key is not one of this server's", hint="ask for one that is")
    else:
        error = Unauthorized(
            "this server wants a key", hint="send it as `Authorization: Bearer KEY`"
        )
    challenge = 'Bearer realm="bourn"' + (', error="invalid_token"' if given else "")
    return JSONResponse(error_object(error), 401, {"www-authenticate": challenge})


# -- where keys come from --------------------------------------------------------------------------


def keys_from_file(path: Path) -> frozenset[str]:
    """The keys of a file, one a line. Empty lines and those that begin with `#` are none.

    Raises:
        SettingsError: it cannot be read, holds none, or one that no header can carry.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is no text in UTF-8"
        raise SettingsError(
            f"the keys in {path} cannot be read: {reason}", hint="give a file, one key a line"
        ) from None  # what is wrong may quote what it read
    said = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    named = [(f"line {number} of {path}", key) for number, key in said if key and key[0] != "#"]
    if not named:
        raise SettingsError(f"{path} holds no key", hint="write one key a line into it")
    return frozenset(check_key(key, where) for where, key in named)


def keys_from_environment(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The keys of `BOURN_API_KEYS`, with commas or blanks between them; none where it is not set.

    Raises:
        SettingsError: it is set and holds none, or one that no header can carry.
    """
    if VARIABLE not in environ:
        return frozenset()
    keys = [key for key in re.split(r"[\s,]+", environ[VARIABLE]) if key]
    if not keys:
        raise SettingsError(
            f"{VARIABLE} is set, and holds no key", hint="put a key into it, or unset it"
        )
    return frozenset(check_key(key, f"key {n} of {VARIABLE}") for n, key in enumerate(keys, 1))


def exposure(path: Path) -> str | None:
    """What to say of a file of keys that everybody on this machine may read; None of another."""
    if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
        return f"everybody on this machine may read {path}: chmod 600 {path}"
    return None


def check_key(key: str, where: str) -> str:
    """The key; `where` it stands is for the error.

    Raises:
        SettingsError: no header can carry it.
    """
    if not re.fullmatch(r"[!-~]+", key):
        raise SettingsError(
            f"{where} cannot be sent in a header",
            hint="a key is made of ASCII letters, digits and signs, without blanks",
        )
    return key
