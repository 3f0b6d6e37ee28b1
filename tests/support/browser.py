"""The page in a real browser, as a visitor uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

SECONDS = 1000.0  # Playwright counts in milliseconds
PATIENCE = 60 * SECONDS


@contextmanager
def browsing(program: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # its own sandbox wants rights that containers do not give
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody with a browser of their own. `strayed`: what was asked of other hosts."""

    def __init__(self, browser: Browser, url: str, **how: Any) -> None:
        self.url = url
        self.strayed: list[str] = []
        self.context: BrowserContext = browser.new_context(
            **{"viewport": {"width": 1100, "height": 800}} | how
        )
        self.context.set_default_timeout(PATIENCE)
        self.context.on("request", lambda request: self._asks(request.url))
        self.context.on("requestfailed", self._failed)
        self.page = self.context.new_page()

    def _asks(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.strayed.append(url)

    def _failed(self, request: Request) -> None:
        if request.failure == "csp" and request.url in self.strayed:
            self.strayed.remove(request.url)  # the page's policy kept it from being asked

    def open(self, path: str = "/") -> Page:
        """The page, once it can be used."""
        self.page.goto(self.url + path)
        return self.wait_for_page()

    def wait_for_page(self) -> Page:
        self.page.wait_for_selector("#box textarea")
        self.page.wait_for_selector("#mark [data-talk]", state="attached")
        return self.page

    def ask(self, text: str) -> None:
        """Begin it: wait until it is being answered."""
        self.page.fill("#box textarea", text)
        self.page.press("#box textarea", "Enter")
        self.page.wait_for_selector("#stop:visible")

    def answered(self) -> str:
        """Wait for the end of the answer, and give what is shown of it."""
        self.page.wait_for_selector("#send:visible")
        return self.answer()

    def asked(self, text: str) -> str:
        """Ask, and wait for the answer; which may be quick."""
        self.page.fill("#box textarea", text)
        self.page.press("#box textarea", "Enter")
        expect(self.page.locator("#now [data-testid=user]").last).to_have_text(
            text, timeout=PATIENCE
        )
        self.page.wait_for_selector("#now .meter, #now .wrong")
        return self.answered()

    def answer(self) -> str:
        """What is shown of the last answer, as text; not what bourn says of it."""
        parts = self.page.locator("#now .bot .message-content .prose").all_inner_texts()
        return "\n".join(part.strip() for part in parts)

    def wait_for_words(self, more_than: int = 0) -> int:
        """Wait until so many letters of the answer are shown; how many are now."""
        self.page.wait_for_function(
            "least => [...document.querySelectorAll('#now .bot .message-content .prose')]"
            ".reduce((sum, part) => sum + part.innerText.trim().length, 0) > least",
            arg=more_than,
        )
        return len(self.answer())

    @property
    def talk(self) -> str:
        """The id of the conversation that is shown."""
        return str(self.page.locator("#mark [data-talk]").get_attribute("data-talk"))

    def wait_for_talk(self, talk: str) -> None:
        """Wait until a conversation is shown, and named by the address; "" is a new one."""
        self.page.wait_for_function(
            "talk => document.querySelector('#mark [data-talk]')?.dataset.talk === talk &&"
            " (new URL(location.href).searchParams.get('c') ?? '') === talk",
            arg=talk,
        )

    def export(self, end: str, talk: str = "") -> Any:
        """The response to a download of the conversation."""
        return self.context.request.get(f"{self.url}/conversations/{talk or self.talk}.{end}")

    def keep_going(self) -> None:
        self.page.click("#fold-settings")
        self.page.check("#keep input")
        self.page.click("#fold-settings")

    def wish(self, label: str, value: object) -> None:
        """What stands in a field of the settings from now on."""
        self.page.click("#fold-settings")
        self.page.get_by_label(label).fill(str(value))
        self.page.click("#fold-settings")

    def at_most(self, tokens: int) -> None:
        self.wish("Max new tokens", tokens)

    def leave(self) -> None:
        self.context.close()
