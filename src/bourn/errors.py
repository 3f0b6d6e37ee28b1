"""Every error bourn raises, in one tree.

    BournError
    ├── InvalidRequest            the caller must change something (400)
    │   ├── UnsupportedField      this engine cannot honour that field
    │   ├── PromptTooLong         the prompt does not fit the context window
    │   ├── RequestTooLarge       more bytes than the server takes (413)
    │   └── TemplateError         no chat template, or it refuses these messages
    ├── SettingsError             a flag, BOURN_* variable or configuration file is wrong
    ├── StoreFailed               what bourn keeps on disk cannot be read or written
    ├── ModelNotFound             no such model, here or there (404)
    ├── NotCached                 only an answer that is there was wanted, and it is not (504)
    ├── Unauthorized              the key is refused (401, 403)
    ├── Forbidden                 this server does not answer who asks in that way (403)
    ├── RequestTimeout            the request came too slowly (408)
    ├── Overloaded                try again later (429, 503)
    │   ├── QueueFull             bourn's own queue is full
    │   └── RateLimited           the endpoint said so
    ├── EngineError               the generation failed (500, 502)
    │   ├── LoadFailed            the model could not be loaded
    │   ├── ConnectionFailed      the endpoint cannot be reached
    │   ├── EngineTimeout         the endpoint took longer than it may
    │   │   └── AnswerTimeout     the whole answer did; it would again
    │   ├── Interrupted           the stream ended without a finish reason
    │   └── EngineCrashed         the engine's process died
    └── StreamError               a stream was used wrongly
        ├── StreamConsumed        a second iteration; one stream is one answer
        ├── StreamClosed          reading after it was closed
        └── StreamNotFound        there is none of that id, or it is somebody else's (404)

Each carries a suggested HTTP `status`, a stable `code` for machines, whether asking again may help
(`retryable`), and a `hint`: what to do now.
"""

from __future__ import annotations

from typing import Any, ClassVar


class BournError(Exception):
    """The root. `str(error)` says what happened, `error.hint` what to do about it."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class InvalidRequest(BournError, ValueError):
    """`field`: the one that is wrong, where it is one."""

    status = 400
    code = "invalid_request"
    field: str | None = None

    def __init__(self, message: str, *, hint: str = "", field: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if field is not None:
            self.field = field


class UnsupportedField(InvalidRequest):
    """The engine cannot honour `field`: refused, since dropping it would be a lie."""

    code = "unsupported_field"

    def __init__(self, field: str, engine: str, *, hint: str = "") -> None:
        hint = hint or f"leave `{field}` out"
        super().__init__(f"{engine} cannot honour `{field}`", hint=hint, field=field)


class PromptTooLong(InvalidRequest):
    """`prompt_tokens` do not fit a `window` of so many (None: the endpoint did not say)."""

    code = "context_length_exceeded"

    def __init__(
        self, message: str, *, prompt_tokens: int | None, window: int | None, hint: str = ""
    ) -> None:
        super().__init__(
            message, hint=hint or "shorten the prompt, or use a larger window (--window)"
        )
        self.prompt_tokens = prompt_tokens
        self.window = window


class RequestTooLarge(InvalidRequest):
    status = 413
    code = "request_too_large"


class TemplateError(InvalidRequest):
    code = "chat_template"


class SettingsError(BournError, ValueError):
    status = 400
    code = "settings"


class StoreFailed(BournError):
    code = "store"


class ModelNotFound(BournError):
    status = 404
    code = "model_not_found"


class NotCached(BournError):
    """As a proxy answers `only-if-cached`."""

    status = 504
    code = "not_cached"


class Unauthorized(BournError):
    status = 401
    code = "unauthorized"


class Forbidden(BournError):
    status = 403
    code = "forbidden"


class RequestTimeout(BournError):
    status = 408
    code = "request_timeout"
    retryable = True


class Overloaded(BournError):
    """`retry_after`: seconds after which to ask again, where known."""

    status = 503
    code = "overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class QueueFull(Overloaded):
    status = 429
    code = "queue_full"


class RateLimited(Overloaded):
    status = 429
    code = "rate_limited"


class EngineError(BournError):
    status = 502
    code = "engine_error"


class LoadFailed(EngineError):
    status = 500
    code = "load_failed"


class ConnectionFailed(EngineError):
    code = "connection_failed"
    retryable = True


class EngineTimeout(EngineError):
    status = 504
    code = "timeout"
    retryable = True


class AnswerTimeout(EngineTimeout):
    """Asking again would compute the same once more, to the same end."""

    code = "answer_timeout"
    retryable = False


class Interrupted(EngineError):
    code = "interrupted"
    retryable = True


class EngineCrashed(EngineError):
    """`last_words`: the final lines the process wrote to stderr."""

    status = 500
    code = "engine_crashed"
    retryable = True

    def __init__(self, message: str, *, last_words: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.last_words = last_words

    def __str__(self) -> str:
        return "\n  ".join((self.message, *self.last_words))


class StreamError(BournError, RuntimeError):
    code = "stream_error"


class StreamConsumed(StreamError):
    code = "stream_consumed"


class StreamClosed(StreamError):
    code = "stream_closed"


class StreamNotFound(StreamError):
    status = 404
    code = "stream_not_found"


def describe(error: BaseException) -> dict[str, Any]:
    """An error as OpenAI's wire and `--json` show it: `message`, `type`, `code`, perhaps `hint`."""
    if not isinstance(error, BournError):
        name = type(error).__name__
        return {"message": str(error) or name, "type": name, "code": "internal_error"}
    told: dict[str, Any] = {
        "message": str(error),
        "type": type(error).__name__,
        "code": error.code,
        "retryable": error.retryable,
    }
    if error.hint:
        told["hint"] = error.hint
    return told
