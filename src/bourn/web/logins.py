"""What whoever has shown a key is given, so as not to show it again, and where that leads them.

It is pure: it knows no request, and no clock.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from hashlib import blake2b

from bourn.server.keys import KeyRing, owner_of

LOGIN, LOGOUT = "/login", "/logout"

LOGGED_IN = 30 * 24 * 3600
"""Seconds for which a login is good."""


class Logins:
    """Makes and knows the cookies of those who have logged in. Of the keys it keeps digests."""

    def __init__(self, keys: Collection[str]) -> None:
        self._ring = KeyRing(keys)
        self._secrets = {owner_of(key): _secret(key) for key in keys}

    def cookie(self, key: str, now: float) -> str | None:
        """What whoever has this key is given; None where it is not one of the server's."""
        owner = self._ring.owner([key])
        if owner is None:
            return None
        told = f"{owner}.{int(now) + LOGGED_IN}"
        return f"{told}.{self._code(owner, told)}"

    def owner(self, cookie: str, now: float) -> str | None:
        """Whose cookie it is; None where it was not made here, is too old, or its key is gone."""
        found = re.fullmatch(r"(([0-9a-f]{16})\.([0-9]{1,12}))\.([0-9a-f]{64})", cookie, re.ASCII)
        if found is None or found[2] not in self._secrets:
            return None
        right = hmac.compare_digest(found[4], self._code(found[2], found[1]))
        return found[2] if right and now < int(found[3]) <= now + LOGGED_IN + 60 else None

    def _code(self, owner: str, told: str) -> str:
        return hmac.new(self._secrets[owner], told.encode(), "sha256").hexdigest()


def _secret(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=32, person=b"bourn login").digest()


def inside(target: str) -> str:
    """Where to go after a login: a path of this host, and the page where it is anything else.

    Browsers take two slashes for another host, either way round, and pass over control characters.
    """
    is_path = re.fullmatch(r"/(?![/\\])[!-~]*", target) and "\\" not in target
    return target if is_path and not target.startswith((LOGIN, LOGOUT)) else "/"
