"""The page in Chromium, before a model that says what it is told to: hostile, broken, and rich."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import PATIENCE, Visitor, browsing
from tests.support.serve import Served, environment
from tests.support.told_page import FOX, RICH

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    with browsing(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "tests.support.told_page", "0", str(home / "talks.db")]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(home)
    ) as process:
        yield Served(process)
        process.kill()


@pytest.fixture
def visitor(browser: Browser, server: Served) -> Iterator[Visitor]:
    visitor = Visitor(browser, server.url)
    visitor.open()
    yield visitor
    visitor.leave()
    assert visitor.strayed == []


def has_no_sideways_scroll(page: Page) -> bool:
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth &&"
            " document.querySelector('#talk').scrollWidth"
            " <= document.querySelector('#talk').clientWidth"
        )
    )


def test_a_hostile_answer_does_nothing(visitor: Visitor) -> None:
    got: list[str] = []
    visitor.context.on("response", lambda response: got.append(response.url))
    answer = visitor.asked("hostile")
    assert "After it." in answer
    assert not any("/logout" in url for url in got)
    page = visitor.page
    for link in page.locator("#now .prose a").all():
        if link.is_visible() and "javascript:" in (link.get_attribute("href") or ""):
            pytest.fail(link.evaluate("each => each.outerHTML"))
    assert page.evaluate("window.owned ?? null") is None
    assert page.locator("#now .prose :is(script, iframe, style, link)").count() == 0
    assert not any(each.is_visible() for each in page.locator("#now .prose :is(form, input)").all())
    assert page.locator("#box textarea").is_visible()
    for each in page.locator("#now .prose [style]").all():
        assert each.evaluate("e => getComputedStyle(e).position") == "static"
    page.fill("#box textarea", "not covered")  # can be clicked and typed into


def test_nothing_in_an_answer_passes_for_a_part_of_the_page(visitor: Visitor) -> None:
    visitor.asked("hostile")
    assert visitor.page.locator("#talk .prose :is([id], [name])").count() == 0
    visitor.ask("long")
    visitor.wait_for_words()
    visitor.page.keyboard.press("Escape")
    visitor.answered()


def test_what_is_no_markup_is_shown_as_it_stands(visitor: Visitor) -> None:
    answer = visitor.asked("odd")
    assert answer.startswith("? <think>so</think> List<String>, $5 and $6,")
    assert visitor.page.locator("#now .bot .katex").count() == 1


def test_what_is_pressed_twice_is_asked_once(visitor: Visitor) -> None:
    page = visitor.page
    page.keyboard.type("long")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    visitor.wait_for_words()
    assert page.locator("#wrong").inner_text().strip() == ""
    expect(page.locator("#talks label")).to_have_count(1)
    page.keyboard.press("Escape")
    visitor.answered()


def test_the_only_question_is_taken_back_and_asked_again(visitor: Visitor) -> None:
    page = visitor.page
    visitor.asked("Why?")
    page.click("#undo")
    expect(page.locator("#box textarea")).to_have_value("Why?", timeout=PATIENCE)
    assert visitor.asked("Why?") == FOX.strip()
    page.click("#fresh")
    expect(page.locator("#now [data-testid=user]")).to_have_count(0, timeout=PATIENCE)
    assert page.evaluate("document.activeElement.closest('#box') !== null")
    page.click("#talks label")  # where it was before
    expect(page.locator("#now [data-testid=user]")).to_have_text("Why?", timeout=PATIENCE)


def test_a_phone_shows_what_is_wide(browser: Browser, server: Served) -> None:
    visitor = Visitor(browser, server.url, viewport={"width": 390, "height": 780})
    page = visitor.open()
    visitor.asked("wide")
    expect(page.locator("#now .katex-display")).to_be_visible()
    assert has_no_sideways_scroll(page)
    box = page.locator("#now .bot.message").bounding_box()
    assert box is not None
    assert box["width"] > 390 * 0.9
    visitor.leave()


@pytest.mark.parametrize(
    ("asked", "told"), [("crash", "the engine died"), ("bug", "something went wrong here")]
)
def test_an_error_is_told_and_the_page_goes_on(asked: str, told: str, visitor: Visitor) -> None:
    page = visitor.page
    answer = visitor.asked(asked)
    assert answer
    assert FOX.startswith(answer)
    expect(page.locator("#now .wrong")).to_contain_text(told)
    expect(page.locator("#now")).not_to_contain_text("secret")
    expect(page.locator("#box textarea")).to_be_enabled()
    assert visitor.asked("Again.") == FOX.strip()


def test_reading_thinking_and_answering_are_told(visitor: Visitor) -> None:
    page = visitor.page
    visitor.ask("a prompt to read")
    expect(page.locator("#status")).to_have_text(
        re.compile(r"reading the prompt, \d+ %"), timeout=PATIENCE
    )
    visitor.answered()
    visitor.ask("think")
    expect(page.locator("#now .thought-group")).to_contain_text("Let me see.", timeout=PATIENCE)
    visitor.answered()
    expect(page.locator("#now .thought-group")).not_to_contain_text("Let me see.")  # folded
    page.click("#now .thought-group [role=button]")
    expect(page.locator("#now .thought-group")).to_contain_text("Let me see.")


def test_a_tab_closed_while_the_prompt_is_read_ends_that(visitor: Visitor, server: Served) -> None:
    visitor.ask("a prompt to read")
    expect(visitor.page.locator("#status")).to_contain_text("reading", timeout=PATIENCE)
    visitor.page.close()
    assert server.idle("told", 2)  # it would be read for 5 seconds


def test_the_place_in_the_queue_is_told(visitor: Visitor, browser: Browser, server: Served) -> None:
    busy = [Visitor(browser, server.url) for _ in range(2)]
    for each in busy:
        each.open()
        each.ask("long")
    visitor.ask("long")
    expect(visitor.page.locator("#status")).to_have_text("1st in the queue", timeout=PATIENCE)
    busy[0].page.keyboard.press("Escape")
    visitor.wait_for_words()
    for each in busy:
        each.leave()


def test_it_can_be_used_by_keyboard_and_heard(visitor: Visitor) -> None:
    page = visitor.page
    page.evaluate(
        "window.heard = []; new MutationObserver(() => heard.push(document.querySelector('#voice')"
        ".innerText)).observe(document.querySelector('#voice'), {childList: true})"
    )
    page.keyboard.type("long")  # the box has the focus from the beginning
    page.keyboard.press("Enter")
    visitor.wait_for_words(200)
    assert page.evaluate("document.activeElement.closest('#box') !== null")
    page.keyboard.press("Escape")
    visitor.answered()
    for log in page.locator("#talk [role=log]").all():
        assert log.get_attribute("aria-live") == "off"
    assert page.locator("#voice").get_attribute("aria-live") == "polite"
    assert page.get_by_role("group", name="Your question").count() == 1
    expect(page.get_by_role("group", name="The answer").first).to_contain_text("fox")
    heard = page.evaluate("heard.filter(text => text)")
    assert 0 < len(heard) < visitor.wait_for_words() / 40  # of words that are about five long
    assert "dog." in " ".join(heard)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#send') !== null")


def test_what_is_typed_while_it_answers_is_kept(visitor: Visitor) -> None:
    page = visitor.page
    visitor.ask("long")
    page.keyboard.type("and then?")
    page.keyboard.press("Enter")
    expect(page.locator("#wrong")).to_contain_text("being answered", timeout=PATIENCE)
    expect(page.locator("#box textarea")).to_have_value("and then?")
    page.keyboard.press("Escape")
    visitor.answered()
    page.keyboard.press("Enter")
    expect(page.locator("#now [data-testid=user]")).to_have_text("and then?", timeout=PATIENCE)


CODE = "Fix this:\n\n    def __init__(self):  # <b>$a$</b>\n\treturn **x**\n1. so"


def test_a_question_is_shown_copied_and_edited_as_it_was_typed(visitor: Visitor) -> None:
    page = visitor.page
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.ask(f"{CODE} long")
    page.keyboard.press("Escape")
    visitor.answered()
    question = page.locator("#now .user .prose p")
    assert question.inner_text().replace("\n \n", "\n\n") == f"{CODE} long"
    page.click("#now .message-buttons-right [aria-label='Copy message']")
    assert page.evaluate("navigator.clipboard.readText()") == f"{CODE} long"
    page.click("#now [aria-label=Edit]")
    field = page.locator("#now .user textarea")
    expect(field).to_have_value(f"{CODE} long", timeout=PATIENCE)
    field.press("Escape")
    expect(field).to_have_count(0, timeout=PATIENCE)
    page.click("#now [aria-label=Edit]")
    expect(field).to_have_value(f"{CODE} long", timeout=PATIENCE)
    field.fill(f"{CODE} & more")
    page.click("#now [aria-label=Submit]")
    expect(question).to_contain_text("& more", timeout=PATIENCE)
    visitor.answered()
    assert f"{CODE} & more" in visitor.export("md").text()


def test_an_answer_is_copied_as_the_model_wrote_it(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.asked("rich")
    visitor.page.get_by_role("button", name="Copy", exact=True).click()
    assert visitor.page.evaluate("navigator.clipboard.readText()") == RICH


def test_a_draft_outlives_a_reload(visitor: Visitor) -> None:
    page = visitor.page
    page.fill("#box textarea", "half a thought")
    page.reload()
    expect(page.locator("#box textarea")).to_have_value("half a thought", timeout=PATIENCE)


def test_a_long_conversation_opens_at_its_end(visitor: Visitor) -> None:
    for number in range(12):
        visitor.asked(f"{number}: " + "word " * 60)
    visitor.page.reload()
    visitor.wait_for_page()
    expect(visitor.page.locator("#now .meter")).to_be_in_viewport(timeout=PATIENCE)


LEFT = (
    "(talk => talk.scrollHeight - talk.scrollTop - talk.clientHeight)"
    "(document.querySelector('#talk'))"
)
"""Pixels below what is seen of the conversation."""


def test_the_page_follows_the_answer_until_somebody_scrolls_up(visitor: Visitor) -> None:
    page = visitor.page
    for number in range(3):
        visitor.asked(f"{number}: " + "word " * 60)
        page.wait_for_function(f"{LEFT} < 100")
    visitor.ask("long")
    seen = visitor.wait_for_words(1500)
    page.wait_for_function(f"{LEFT} < 100")
    page.locator("#talk").hover()
    for _ in range(5):
        page.mouse.wheel(0, -300)
    page.wait_for_function(f"{LEFT} > 300")
    visitor.wait_for_words(seen + 500)
    assert page.evaluate(LEFT) > 300
    page.keyboard.press("Escape")
    visitor.answered()


def test_back_and_forward_turn_to_other_conversations(visitor: Visitor) -> None:
    page = visitor.page
    visitor.asked("hello one")
    one = visitor.talk
    page.click("#fresh")
    visitor.wait_for_talk("")
    visitor.asked("hello two")
    two = visitor.talk
    page.click("#fresh")
    visitor.wait_for_talk("")
    page.go_back()
    visitor.wait_for_talk(two)
    expect(page.locator("#now [data-testid=user]")).to_have_text("hello two", timeout=PATIENCE)
    page.go_back()
    visitor.wait_for_talk(one)
    page.go_forward()
    page.go_forward()  # at once
    visitor.wait_for_talk("")
    page.go_back()
    visitor.wait_for_talk(two)
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#fold-this")
    page.click("#delete")
    visitor.wait_for_talk("")
    page.go_back()  # to what is there no more
    visitor.wait_for_talk("")
    visitor.asked("hello three")
    visitor.wait_for_talk(visitor.talk)
    assert visitor.talk not in {one, two, ""}


def test_the_last_that_is_clicked_is_shown(visitor: Visitor) -> None:
    page = visitor.page
    for text in ("hello one", "hello two", "hello three"):
        visitor.asked(text)
        page.click("#fresh")
        visitor.wait_for_talk("")
    talks = page.locator("#talks label")
    for place in (0, 1, 2, 0, 2, 1):  # faster than they are opened
        talks.nth(place).click()
    for shown in ("#now [data-testid=user]", "#talks label.selected"):
        expect(page.locator(shown)).to_have_text("hello two", timeout=PATIENCE)
    visitor.wait_for_talk(visitor.talk)


def test_wrong_settings_are_told_and_nothing_is_lost(visitor: Visitor) -> None:
    page = visitor.page
    page.click("#fold-settings")
    expect(page.get_by_label("System prompt")).to_be_in_viewport()
    page.get_by_label("Temperature").fill("hot")
    page.fill("#box textarea", "Hi")
    page.press("#box textarea", "Enter")
    expect(page.locator("#wrong")).to_contain_text("the temperature is `hot`", timeout=PATIENCE)
    expect(page.locator("#box textarea")).to_have_value("Hi")
    page.get_by_label("Temperature").fill("0.5")
    assert visitor.asked("Hi") == FOX.strip()
    visitor.page.reload()
    visitor.wait_for_page()
    page.click("#fold-settings")
    expect(page.get_by_label("Temperature")).to_have_value("0.5")


def test_it_is_seen_in_light_dark_and_on_a_phone(
    browser: Browser, server: Served, pictures: Path
) -> None:
    looks: dict[str, dict[str, Any]] = {
        "light": {},
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": {"width": 390, "height": 780}},
    }
    for name, how in looks.items():
        visitor = Visitor(browser, server.url, **how)
        page = visitor.open()
        visitor.asked("rich")
        expect(page.locator("#now .katex").first).to_be_visible()
        expect(page.locator("#now table")).to_be_visible()
        expect(page.locator("#now pre")).to_be_visible()
        assert has_no_sideways_scroll(page)
        page.screenshot(path=pictures / f"{name}.png")
        visitor.ask("long")
        visitor.wait_for_words(200)
        page.screenshot(path=pictures / f"{name}-streaming.png")
        page.keyboard.press("Escape")
        visitor.answered()
        page.screenshot(path=pictures / f"{name}-stopped.png")
        visitor.asked("crash")
        expect(page.locator("#now .wrong")).to_be_in_viewport()  # it is scrolled to
        page.screenshot(path=pictures / f"{name}-error.png")
        assert has_no_sideways_scroll(page)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", dark)[:3])) < 200) is (name == "dark")
        visitor.leave()
