"""The page in Chromium, before the real model: what is seen, and what is computed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PATIENCE, Visitor, browsing
from tests.support.serve import Served, gone, serving

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

STORY = "Tell me a long story about a river and a lamp."
MODEL = "smollm2"
EXAMPLE = "What is a harbour?"


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with browsing(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    how = ("--no-browser", "--example", EXAMPLE)
    with serving(f"{MODEL}={smollm2}", *how, home=home, by="web") as server:
        server.ready()
        yield server
        assert "Traceback" not in server.told
        assert server.end() == 0  # with pages open


@pytest.fixture
def visitor(browser: Browser, server: Served) -> Iterator[Visitor]:
    with leaving(Visitor(browser, server.url)) as visitor:
        visitor.open()
        visitor.wish("Temperature", 0)  # the story is long then
        yield visitor


class leaving:  # noqa: N801 (it reads as a verb)
    """Who asked no other host for anything."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor

    def __enter__(self) -> Visitor:
        return self.visitor

    def __exit__(self, *_: object) -> None:
        self.visitor.leave()
        assert self.visitor.strayed == []


def saved(visitor: Visitor, talk: str = "") -> list[str]:
    """What the server has of the answers of a conversation."""
    told = json.loads(visitor.export("json", talk).text())
    return [each["content"] for each in told["messages"] if each["role"] == "assistant"]


def plain(text: str) -> str:
    """Its letters: what is left of Markdown when it is drawn."""
    return "".join(letter for letter in text if letter.isalnum())


def test_the_first_words_are_there_before_the_last(visitor: Visitor) -> None:
    visitor.ask(STORY)
    first = visitor.wait_for_words()
    expect(visitor.page.locator("#stop")).to_be_visible()
    assert visitor.wait_for_words(first + 20) > first
    visitor.page.click("#stop")
    answer = visitor.answered()
    assert plain(answer) == plain(saved(visitor)[0])
    meter = visitor.page.locator("#now .meter").inner_text()
    assert all(part in meter for part in ("stopped", "first token", "tokens/s", "tokens"))


@pytest.mark.parametrize("how", ["button", "Esc"])
def test_stopping_frees_the_engine_and_keeps_what_there_is(
    how: str, visitor: Visitor, server: Served
) -> None:
    visitor.ask(STORY)
    visitor.wait_for_words()
    if how == "Esc":
        visitor.page.keyboard.press("Escape")
    else:
        visitor.page.click("#stop")
    answer = visitor.answered()
    assert server.idle(MODEL)
    assert "stopped" in visitor.page.locator("#now .meter").inner_text()
    visitor.page.reload()
    visitor.wait_for_page()
    expect(visitor.page.locator("#now .meter")).to_contain_text("stopped", timeout=PATIENCE)
    assert visitor.answer() == answer


def test_a_closed_tab_frees_the_engine(visitor: Visitor, server: Served) -> None:
    visitor.ask(STORY)
    visitor.wait_for_words()
    talk = visitor.talk
    visitor.page.close()
    assert server.idle(MODEL)
    visitor.page = visitor.context.new_page()
    visitor.open(f"/?c={talk}")
    expect(visitor.page.locator("#now .meter")).to_contain_text("stopped", timeout=PATIENCE)
    assert plain(visitor.answer()) == plain(saved(visitor)[0]) != ""


@pytest.mark.parametrize("how", ["reload", "network"])
def test_what_keeps_going_is_there_after(how: str, visitor: Visitor, server: Served) -> None:
    visitor.keep_going()
    visitor.ask(STORY)
    seen = visitor.wait_for_words()
    if how == "reload":
        visitor.page.reload()
    else:
        visitor.context.set_offline(True)
        visitor.page.wait_for_timeout(500)
        visitor.context.set_offline(False)
    visitor.wait_for_page()
    assert visitor.wait_for_words(seen) > seen
    expect(visitor.page.locator("#stop")).to_be_visible()
    visitor.page.click("#stop")
    answer = visitor.answered()
    assert server.idle(MODEL)
    assert plain(answer) == plain(saved(visitor)[0])


def test_it_goes_on_to_its_end_while_nobody_looks(visitor: Visitor, server: Served) -> None:
    visitor.keep_going()
    visitor.at_most(150)
    visitor.ask(STORY)
    visitor.wait_for_words()
    talk = visitor.talk
    visitor.page.close()
    assert server.idle(MODEL, 60)
    visitor.page = visitor.context.new_page()
    visitor.open(f"/?c={talk}")
    expect(visitor.page.locator("#now .meter")).to_be_visible(timeout=PATIENCE)
    assert "stopped" not in visitor.page.locator("#now .meter").inner_text()
    assert plain(visitor.answer()) == plain(saved(visitor)[0])


def test_two_visitors_neither_see_nor_stop_each_other(
    visitor: Visitor, browser: Browser, server: Served
) -> None:
    with leaving(Visitor(browser, server.url)) as other:
        other.open()
        other.wish("Temperature", 0)
        visitor.ask(STORY)
        other.ask("Tell me a long tale about a fox.")
        seen = visitor.wait_for_words()
        other.wait_for_words()
        other.page.keyboard.press("Escape")
        other.answered()
        assert visitor.wait_for_words(seen + 20) > seen
        expect(other.page.locator("#talks label")).to_have_count(1)
        assert other.export("md", visitor.talk).status == 404
        other.open(f"/?c={visitor.talk}")
        assert other.talk == ""
        expect(other.page.locator("#now")).not_to_contain_text("river and a lamp")
        expect(visitor.page.locator("#stop")).to_be_visible()


def test_an_example_is_answered_once_for_all(browser: Browser, server: Served) -> None:
    answers, computed = [], []
    for _ in range(2):
        with leaving(Visitor(browser, server.url)) as other:
            other.open()
            other.wish("Temperature", 0)  # of a hundred tokens then, and it ends by itself,
            other.at_most(800)  # since what is cut off is given to nobody else
            other.page.get_by_text(EXAMPLE).click()
            other.wait_for_words(10)
            expect(other.page.locator("#stop")).to_be_visible()  # it comes bit by bit
            other.page.wait_for_selector("#now .meter")
            answers.append(other.answered())
            computed.append(server.count("bourn:generation_tokens_total", MODEL))
    assert answers[0] == answers[1] != ""
    assert computed[0] == computed[1]


def test_it_is_pictured(browser: Browser, server: Served, pictures: Path) -> None:
    for name, scheme in {"page": "light", "page-dark": "dark"}.items():
        look = {"color_scheme": scheme, "viewport": {"width": 1000, "height": 560}}
        with leaving(Visitor(browser, server.url, **look)) as other:
            other.open()
            other.wish("Temperature", 0)
            other.at_most(120)
            other.asked("What is a harbour?")
            other.ask("Tell me a long tale about a fox.")
            other.wait_for_words(60)
            if name == "page-dark":
                other.page.keyboard.press("Escape")
                other.answered()
            other.page.screenshot(path=pictures / f"{name}.png")


def test_an_engine_that_dies_is_told_and_the_next_question_answered(
    visitor: Visitor, server: Served
) -> None:
    visitor.ask(STORY)
    visitor.wait_for_words()
    (engine,) = server.engines
    os.kill(engine.pid, signal.SIGKILL)
    answer = visitor.answered()
    assert answer
    expect(visitor.page.locator("#now .wrong")).to_be_visible()
    assert gone([engine])
    visitor.at_most(20)
    assert visitor.asked("Say hello.")
    assert plain(saved(visitor)[0]) == plain(answer)


def test_a_conversation_is_changed_renamed_and_forgotten(visitor: Visitor) -> None:
    page = visitor.page
    visitor.at_most(20)
    visitor.asked("Say hello.")
    visitor.asked("Say yes.")
    expect(page.locator("#past [data-testid=user]")).to_have_text("Say hello.")

    page.click("#undo")
    expect(page.locator("#box textarea")).to_have_value("Say yes.")
    expect(page.locator("#now [data-testid=user]")).to_have_text("Say hello.")

    page.fill("#box textarea", "")
    before = page.locator("#now .meter").inner_text()
    page.click("#again")
    expect(page.locator("#now .meter")).not_to_have_text(before, timeout=PATIENCE)
    visitor.answered()
    assert len(saved(visitor)) == 1

    page.hover("#now .user")
    page.click("#now [aria-label=Edit]")
    page.fill("#now textarea", "Say good morning.")
    page.click("#now [aria-label=Submit]")
    expect(page.locator("#now [data-testid=user]")).to_have_text(
        "Say good morning.", timeout=PATIENCE
    )
    page.wait_for_selector("#now .meter")
    visitor.answered()

    page.click("#fold-this")
    page.fill("#title input, #title textarea", "Mornings")
    page.click("#rename")
    expect(page.locator("#talks label")).to_have_text("Mornings")
    assert "Say good morning." in visitor.export("md").text()
    talk = visitor.talk
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#delete")
    expect(page.locator("#talks label")).to_have_count(0)
    assert visitor.export("md", talk).status == 404


def test_with_keys_who_has_none_sees_nothing(
    browser: Browser, smollm2: Path, tmp_path: Path
) -> None:
    arguments = (f"{MODEL}={smollm2}", "--web", "--api-key", "first", "--api-key", "second")
    with serving(*arguments, home=tmp_path) as server:
        server.ready()
        with leaving(Visitor(browser, server.url)) as visitor:
            visitor.page.goto(server.url)
            assert visitor.page.url.startswith(f"{server.url}/login")
            visitor.page.fill("input[name=key]", "wrong")
            visitor.page.keyboard.press("Enter")
            expect(visitor.page.locator("#wrong")).to_be_visible()
            visitor.page.fill("input[name=key]", "first")
            visitor.page.keyboard.press("Enter")
            visitor.wait_for_page()
            visitor.at_most(20)
            assert visitor.asked("Say hello.")
            assert visitor.context.request.get(f"{server.url}/v1/models").status == 401
            visitor.context.clear_cookies()  # the login has ended
            visitor.page.fill("#box textarea", "Are you there?")
            visitor.page.keyboard.press("Enter")
            visitor.page.fill("input[name=key]", "first")
            visitor.page.keyboard.press("Enter")
            visitor.wait_for_page()
            expect(visitor.page.locator("#box textarea")).to_have_value(
                "Are you there?", timeout=PATIENCE
            )
            expect(visitor.page.locator("#now")).to_contain_text("Say hello.", timeout=PATIENCE)
            visitor.page.get_by_role("button", name="Log out").click()
            visitor.page.wait_for_url(f"{server.url}/login")
            visitor.page.goto(server.url)
            assert visitor.page.url.startswith(f"{server.url}/login")
