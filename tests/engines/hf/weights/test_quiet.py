"""Bars and warnings of transformers: ours while we load, everybody else's as before."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from transformers.utils import logging as theirs

from bourn.engines.hf.weights.quiet import quietly


@pytest.fixture
def heard(talkative: None) -> StringIO:
    return StringIO()


def bar(heard: StringIO) -> list[int]:
    return list(theirs.tqdm(range(3), desc="Loading", file=heard))


def test_bars_become_progress_here_and_stay_bars_elsewhere(heard: StringIO) -> None:
    seen: list[tuple[int, int]] = []
    elsewhere = StringIO()
    with quietly(lambda done, total: seen.append((done, total))), ThreadPoolExecutor(1) as pool:
        assert bar(heard) == [0, 1, 2]
        assert pool.submit(bar, elsewhere).result() == [0, 1, 2]
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert heard.getvalue() == ""
    assert "Loading" in elsewhere.getvalue()
    bar(heard)
    assert "Loading" in heard.getvalue()


def test_bars_of_nothing_and_of_no_known_length_tell_nothing() -> None:
    with quietly(lambda *_: pytest.fail("told")):
        assert list(theirs.tqdm([])) == []
        assert list(theirs.tqdm(iter("ab"))) == ["a", "b"]
        with theirs.tqdm(total=5) as counter:
            counter.update(1)


def test_somebody_elses_hook_is_kept_for_other_threads_and_for_later() -> None:
    made: list[str] = []

    def hook(make: object, args: object, kwargs: dict[str, str]) -> list[object]:
        made.append(kwargs["desc"])
        return []

    before = theirs.set_tqdm_hook(hook)
    try:
        with quietly(), ThreadPoolExecutor(1) as pool:
            list(theirs.tqdm([1], desc="ours"))
            pool.submit(theirs.tqdm, [1], desc="theirs").result()
        theirs.tqdm([1], desc="later")
    finally:
        theirs.set_tqdm_hook(before)
    assert made == ["theirs", "later"]


def test_warnings_are_held_back_and_errors_are_not(heard: StringIO) -> None:
    handler = logging.StreamHandler(heard)
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        with quietly(), ThreadPoolExecutor(1) as pool:
            logger.warning("held back")
            logger.error("an error")
            pool.submit(logger.warning, "elsewhere").result()
        logger.warning("later")
    finally:
        logger.removeHandler(handler)
    assert heard.getvalue().split("\n") == ["an error", "elsewhere", "later", ""]
