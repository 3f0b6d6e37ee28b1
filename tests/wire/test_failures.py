from __future__ import annotations

import json
from typing import Any

import pytest

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
    describe,
)
from bourn.wire.failures import failure_of, is_failure, words_of

TOO_LONG: list[tuple[Any, int | None, int | None]] = [
    (
        {
            "error": {
                "code": 400,
                "message": "request (3031 tokens) exceeds the available context size (1024 tokens)",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 3031,
                "n_ctx": 1024,
            }
        },
        3031,
        1024,
    ),
    (
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your "
                "messages resulted in 9000 tokens.",
                "code": "context_length_exceeded",
            }
        },
        9000,
        8192,
    ),
    (
        {
            "object": "error",
            "message": "This model's maximum context length is 2048 tokens. However, you requested "
            "2148 tokens (2098 in the messages, 50 in the completion).",
        },
        2098,
        2048,
    ),
    (
        "This model's maximum context length is 1536 tokens. However, your request has 4176 input "
        "tokens.",
        4176,
        1536,
    ),
    (
        "You passed 5,000 input tokens and requested 100 output tokens. However, the model's "
        "context length is only 4,096 tokens.",
        5000,
        4096,
    ),
    (
        "The decoder prompt (length 3000) is longer than the maximum model length of 2048.",
        3000,
        2048,
    ),
    (
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        516368,
        262144,
    ),
    (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        40000,
        32768,
    ),
    ("prompt is too long: 210000 tokens > 200000 maximum", 210000, 200000),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1200000,
        1048576,
    ),
    (
        {"error": {"message": "Please shorten it.", "code": "context_length_exceeded"}},
        None,
        None,
    ),
]


@pytest.mark.parametrize(("told", "prompt", "window"), TOO_LONG)
def test_a_prompt_that_is_too_long_in_many_words(
    told: Any, prompt: int | None, window: int | None
) -> None:
    body = {"error": {"message": told}} if isinstance(told, str) else told
    error = failure_of(400, json.dumps(body))
    assert isinstance(error, PromptTooLong)
    assert (error.prompt_tokens, error.window) == (prompt, window)
    assert str(error) == words_of(body)


@pytest.mark.parametrize(
    "words",
    [
        "'max_tokens' is too large: 8000. This model's maximum context length is 4096 tokens and "
        "your request has 2778 input tokens",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens "
        "(100 in the messages, 8900 in the completion).",
        "the prompt size is odd",
    ],
)
def test_a_prompt_that_fits_is_not_called_too_long(words: str) -> None:
    error = failure_of(400, json.dumps({"error": {"message": words}}))
    assert type(error) is InvalidRequest
    assert words in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, EngineError),
        (400, InvalidRequest),
        (401, Unauthorized),
        (403, Unauthorized),
        (404, EngineError),
        (405, EngineError),
        (408, EngineTimeout),
        (422, InvalidRequest),
        (429, RateLimited),
        (500, EngineError),
        (502, ConnectionFailed),
        (503, Overloaded),
        (504, EngineTimeout),
        (529, Overloaded),
        (599, EngineError),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[BournError]) -> None:
    error = failure_of(status, '{"error": {"message": "so it is"}}', where="http://h/v1")
    assert type(error) is kind
    assert str(error) == f"http://h/v1 answered {status}: so it is"
    assert error.hint


def test_a_missing_model_is_told_from_a_missing_page() -> None:
    assert type(failure_of(404, '{"error": "model \'x\' not found"}')) is ModelNotFound
    assert type(failure_of(404, "404 page not found")) is EngineError


def test_when_to_ask_again() -> None:
    error = failure_of(429, "", retry_after=12.0)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.hint) == (12.0, "ask again in 12 s")
    assert str(error) == "the endpoint answered 429"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "a"}}', "a"),
        ('{"error": "a"}', "a"),
        ('{"detail": "a"}', "a"),
        ('{"message": "a", "object": "error"}', "a"),
        ('[{"error": {"message": "a"}}]', "a"),
        (
            '{"detail": [{"loc": ["body", "n", 0], "msg": "a"}, {"loc": ["q"], "msg": "b"}]}',
            "body.n.0: a; q: b",
        ),
        (
            '{"object": "error", "message": {"detail": [{"loc": ["body", "x"], "msg": "a"}]}}',
            "body.x: a",
        ),
        ('{"error": {"message": "{\\"error\\": {\\"message\\": \\"inner\\"}}"}}', "inner"),
        (
            "<html><head><title>502 Bad\n Gateway</title></head><body>…</body></html>",
            "502 Bad Gateway",
        ),
        ("plain  text\n", "plain text"),
        ('{"error": "CUDA "oom""}', 'CUDA "oom"'),
        ("", ""),
        ("{}", ""),
        ('{"error": null}', ""),
        ("[1, null]", ""),
    ],
)
def test_the_words_are_found(body: str, words: str) -> None:
    said = str(failure_of(500, body))
    assert said == (f"the endpoint answered 500: {words}" if words else "the endpoint answered 500")


def test_a_flood_of_words_is_cut() -> None:
    assert len(str(failure_of(500, "x" * 100_000))) < 600


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"error": {"message": "a", "code": 429}}, RateLimited),
        ({"error": {"message": "a", "code": "401"}}, Unauthorized),
        ({"error": {"message": "a", "type": "invalid_request_error"}}, InvalidRequest),
        ({"error": {"message": "a", "type": "server_error"}}, EngineError),
        ({"error": {"message": "a"}, "status": 503}, Overloaded),
        ({"object": "error", "message": "a", "code": 400}, InvalidRequest),
        ({"error": "a"}, EngineError),
    ],
)
def test_an_error_inside_a_stream(frame: dict[str, Any], kind: type[BournError]) -> None:
    assert is_failure(frame)
    error = failure_of(None, json.dumps(frame))
    assert type(error) is kind
    assert str(error) == "the endpoint failed: a"


@pytest.mark.parametrize(
    "frame", [{}, {"choices": []}, {"error": None}, {"error": {}}, [], "x", None]
)
def test_what_is_no_error(frame: object) -> None:
    assert not is_failure(frame)


def test_our_own_errors_come_back_as_they_went() -> None:
    for sent in (RateLimited("a"), Unauthorized("a"), EngineTimeout("a"), InvalidRequest("a")):
        frame = {"error": {**describe(sent), "status": sent.status}}
        assert type(failure_of(None, json.dumps(frame))) is type(sent)
