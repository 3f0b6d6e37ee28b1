from __future__ import annotations

import json

from bourn.error_values import error_object, error_of
from bourn.errors import BournError, EngineCrashed, EngineError, PromptTooLong, QueueFull


def again(error: BaseException) -> BournError:
    return error_of(json.loads(json.dumps(error_object(error, hint="look at the log"))))


def test_an_error_is_what_it_was() -> None:
    for error in (
        PromptTooLong("too long", prompt_tokens=9, window=None),
        QueueFull("full", retry_after=1.5, hint="later"),
        EngineCrashed("it died", last_words=("no memory", "at all")),
    ):
        assert type(again(error)) is type(error)
        assert vars(again(error)) == vars(error)


def test_a_foreign_one_is_named() -> None:
    error = again(KeyError("weights"))
    assert type(error) is EngineError
    assert str(error) == "KeyError: 'weights'"
    assert error.hint == "look at the log"
    assert str(again(AssertionError())) == "AssertionError"


def test_one_of_a_kind_that_is_unknown_is_the_nearest_that_is_known() -> None:
    class Special(QueueFull):
        pass

    error = Special("full", retry_after=2.0)
    error.thing = object()  # type: ignore[attr-defined]
    assert type(again(error)) is QueueFull
    assert vars(again(error)) == {"message": "full", "hint": "", "retry_after": 2.0}
    assert type(error_of({"code": "of a newer bourn", "message": "?", "hint": ""})) is EngineError
