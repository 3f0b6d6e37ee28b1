"""Token counts and log probabilities: they ride on the text, and get off where it does.

Knows the places of text, not what is in it. Places are counted twice: in the raw text, as the
model wrote it, and in the answer, once its channels are told apart. What filters the answer after
that may hold text back, and may end it, but keeps every character in its place.
"""

from __future__ import annotations

from collections import deque

from bourn.text.channels import Cut
from bourn.text.span import Span
from bourn.types import Channel, TokenLogprob


class Riders:
    """Each token is counted once, and each entry given once, in order, with its text or after it.

    An entry waits for as long as the text that its token begins with is held. `tokens`: how many
    are still to be counted.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._raw = 0  # characters that the model wrote
        self._entered = 0  # characters of the answer
        self._left = 0  # and those of them that went out
        self._unlabelled: deque[tuple[int, TokenLogprob]] = deque()  # by place in the raw text
        self._labelled: deque[tuple[int, TokenLogprob]] = deque()  # by how much must be out

    def board(self, text: str, entries: tuple[TokenLogprob, ...]) -> None:
        """Some raw text comes, made of these tokens; without text they belong to the next."""
        place, last = self._raw, self._raw + max(0, len(text) - 1)
        for entry in entries:
            # Half a character may be written longer than its share of the text.
            self._unlabelled.append((min(place, last), entry))
            place += len(entry.token)
        self._raw += len(text)

    def label(self, cut: Cut) -> None:
        """The channel of some raw text is known; what lay between it and the last was no text."""
        answer = cut.channel is Channel.ANSWER
        begin = cut.end - len(cut.text)
        while self._unlabelled and self._unlabelled[0][0] < cut.end:
            place, entry = self._unlabelled.popleft()
            inside = max(0, place - begin + 1) if answer else 0
            self._labelled.append((self._entered + inside, entry))
        if answer:
            self._entered += len(cut.text)

    def leave(self, span: Span) -> tuple[int, tuple[TokenLogprob, ...]]:
        """Some text goes out: the tokens and entries that go with it."""
        if span.channel is Channel.ANSWER:
            self._left += len(span.text)
        return self.take_tokens(), self.decided()

    def take_tokens(self) -> int:
        """The tokens that were not taken along yet."""
        tokens, self.tokens = self.tokens, 0
        return tokens

    def decided(self) -> tuple[TokenLogprob, ...]:
        """The entries whose token begins in text that is out, or in a mark before what is held."""
        entries = []
        while self._labelled and self._labelled[0][0] <= self._left:
            entries.append(self._labelled.popleft()[1])
        return tuple(entries)

    def rest(self) -> tuple[TokenLogprob, ...]:
        """The text has ended by itself: the entries that are left."""
        left = tuple(entry for _, entry in (*self._labelled, *self._unlabelled))
        self._labelled.clear()
        self._unlabelled.clear()
        return left
