"""Stop strings: texts that end the answer. Knows nothing of tokens, nor of what stopping means.

They act on the answer only, as its reader sees it: joined, whatever came between. A match may lie
across any border, and its text is never sent; so what may yet become one is overtaken by spans of
other channels.
"""

from __future__ import annotations

from bourn.text.matcher import Matcher
from bourn.text.span import Span
from bourn.types import Channel


class StopStrings:
    """Passes the answer up to the first stop string, and then nothing more of any channel.

    The stop that ends first in the text wins, and of several that end there the longest; the order
    of the list does not matter.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._matcher = Matcher(stops) if stops else None
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that was found."""
        return self._matched

    @property
    def held(self) -> str:
        """The end of the answer that may yet become a stop string."""
        return self._matcher.held if self._matcher else ""

    def feed(self, span: Span) -> list[Span]:
        if self._matched is not None:
            return []
        if self._matcher is None or span.channel is not Channel.ANSWER:
            return [span]
        clear, self._matched, _ = self._matcher.read(span.text)
        return [Span(Channel.ANSWER, clear)] if clear else []

    def flush(self) -> list[Span]:
        held = self._matcher.flush() if self._matcher else ""
        return [Span(Channel.ANSWER, held)] if held else []
