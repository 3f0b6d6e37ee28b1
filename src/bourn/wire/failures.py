"""What an endpoint says went wrong, as an error of ours. No connection here: text in, error out.

The server's own words are kept. They come as `{"error": {"message": …}}` (OpenAI, llama.cpp),
`{"error": "…"}` (Ollama, TGI), `{"detail": …}` (FastAPI), `{"message": …}` (old vLLM, Mistral),
HTML or plain text (proxies).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jiter

from bourn.errors import (
    BournError,
    ConnectionFailed,
    EngineError,
    EngineTimeout,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unauthorized,
)

_TOO_LONG_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "model_context_window_exceeded",
}
_TOO_LONG = re.compile(
    r"(context|prompt|model) (length|window|size)|maximum (input|prompt|model)|prompt is too long"
    r"|input is too long|too large for model|input token count",
    re.IGNORECASE,
)
_NUMBER = r"\(?(\d[\d,]*)"
_WINDOW = re.compile(
    rf"(?:context|model|prompt) (?:length|window|size) (?:is |of )?(?:only )?{_NUMBER}"
    rf"|{_NUMBER} (?:tokens\) )?maximum|tokens > {_NUMBER}|tokens allowed {_NUMBER}",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    rf"{_NUMBER} (?:in the (?:messages|prompt)|input tokens)"
    rf"|(?:resulted in|passed|contains|input|length|request|too long:|count) {_NUMBER}",
    re.IGNORECASE,
)
_PROMPT_AND_LIMIT = re.compile(rf"requested {_NUMBER}", re.IGNORECASE)
_KINDS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 503,
    "timeout": 504,
}

_KEY = "check the key: api_key=, BOURN_API_KEY, or the provider's own variable"
_URL = "is the base URL right? it mostly ends in /v1"
_SLOW = "ask again; a shorter prompt is read sooner"
_STATUSES: Mapping[int, tuple[type[BournError], str]] = {
    401: (Unauthorized, _KEY),
    403: (Unauthorized, _KEY),
    404: (EngineError, _URL),
    405: (EngineError, _URL),
    408: (EngineTimeout, _SLOW),
    501: (EngineError, _URL),
    502: (ConnectionFailed, "what stands behind this proxy does not answer"),
    504: (EngineTimeout, _SLOW),
}
_OTHERS: Mapping[int, tuple[type[BournError], str]] = {
    3: (EngineError, _URL),
    4: (InvalidRequest, "change what it names"),
    5: (EngineError, "the endpoint's own log may tell more"),
}


def failure_of(
    status: int | None, told: str, *, where: str = "the endpoint", retry_after: float | None = None
) -> BournError:
    """The error for an answer of that status with that body, or for an error inside a stream.

    status: None inside a stream; then it is guessed from what was told.
    where: who said it, for the message. retry_after: seconds.
    """
    payload = _json(told)
    words = words_of(payload)
    said = f"{where} failed" if status is None else f"{where} answered {status}"
    status = status or _status(payload)
    if 400 <= status < 500 and (too_long := _too_long(payload, words)):
        return too_long
    return _by_status(status, words, f"{said}: {words}" if words else said, retry_after)


def is_failure(payload: object) -> bool:
    """Whether a frame of a stream is an error rather than a part of an answer."""
    return isinstance(payload, dict) and bool(
        payload.get("error") or payload.get("object") == "error"
    )


def words_of(payload: object, limit: int = 500) -> str:
    """The words meant for people in an error body of any shape, or "" where there are none."""
    match payload:
        case str():
            nested = _json(payload)
            words = _plain(payload[:4000]) if isinstance(nested, str) else words_of(nested)
        case [*items]:
            words = "; ".join(filter(None, map(words_of, items)))
        case {"loc": [*place], "msg": str(message)}:
            words = f"{'.'.join(map(str, place))}: {message}"
        case Mapping():
            named = (payload.get(name) for name in ("error", "message", "detail", "msg"))
            words = next(filter(None, map(words_of, named)), "")
        case _:
            words = ""
    return words if len(words) <= limit else words[:limit] + " …"


def _plain(text: str) -> str:
    """What is no JSON: of an HTML page its title, of JSON put together by hand its inside."""
    inside = re.search(
        r"<title>(.*?)</title>|^\s*\{\s*\"error\"\s*:\s*\"(.*?)\"?\s*\}?\s*$",
        text,
        re.IGNORECASE | re.DOTALL,
    )
    return " ".join((next(filter(None, inside.groups()), "") if inside else text).split())


def _json(text: str) -> object:
    """The JSON that `text` is; itself where it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return jiter.from_json(text.encode("utf-8", "replace"))
    except ValueError:
        return text


def _status(payload: object) -> int:
    """The HTTP status that an error inside a stream stands for."""
    if isinstance(payload, Mapping):
        inner = payload.get("error")
        for said in (inner, payload):
            if isinstance(said, Mapping):
                for name in ("code", "status_code", "status", "type"):
                    if status := _status_in(said.get(name)):
                        return status
    return 500


def _status_in(value: object) -> int | None:
    if isinstance(value, str):
        value = int(value) if re.fullmatch(r"\d{3}", value) else _KINDS.get(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _too_long(payload: object, words: str) -> PromptTooLong | None:
    inner = payload.get("error", payload) if isinstance(payload, Mapping) else {}
    fields: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {}
    certain = fields.get("code") in _TOO_LONG_CODES or fields.get("type") in _TOO_LONG_CODES
    if not certain and not _TOO_LONG.search(words):
        return None
    prompt = fields.get("n_prompt_tokens") or _number(_PROMPT, words)
    prompt = prompt or _number(_PROMPT_AND_LIMIT, words)
    window = fields.get("n_ctx") or _number(_WINDOW, words)
    if prompt and window and prompt < window:
        return None  # the prompt fits: it is the answer's limit that does not
    if not certain and not window:
        return None
    return PromptTooLong(words, prompt_tokens=prompt, window=window)


def _number(pattern: re.Pattern[str], words: str) -> int | None:
    found = pattern.search(words)
    return int(next(filter(None, found.groups())).replace(",", "")) if found else None


def _by_status(status: int, words: str, message: str, retry_after: float | None) -> BournError:
    if status in (429, 503, 529):
        kind = RateLimited if status == 429 else Overloaded
        return kind(message, retry_after=retry_after, hint=_wait(retry_after))
    if status == 404 and re.search(r"\bmodel\b", words, re.IGNORECASE):
        return ModelNotFound(message, hint="see which models it has: GET …/models")
    fails, hint = _STATUSES.get(status) or _OTHERS[status // 100]
    return fails(message, hint=hint)


def _wait(retry_after: float | None) -> str:
    return f"ask again in {retry_after:g} s" if retry_after else "ask again later"
