"""What is sent of a conversation, and what to send instead where that is refused. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from bourn.chat.chat import Chat
from bourn.chat.fitting import Fitted
from bourn.errors import InvalidRequest, PromptTooLong, UnsupportedField

_MOST_REFUSALS = 3


@dataclass(frozen=True, slots=True)
class Sending:
    """asked: what is to be answered. fitted: what is sent of it. refusals: how many there were."""

    asked: Chat
    fitted: Fitted
    refusals: int = 0

    def shorter(self, refusal: PromptTooLong) -> Sending:
        """Without some more of the oldest turns, since this was found too long.

        Raises:
            PromptTooLong: `refusal`, where nothing more can be left out, or it was tried enough.
        """
        if self.refusals == _MOST_REFUSALS:
            raise refusal
        fitted = self.asked.after_refusal(self.fitted, refusal)
        return Sending(self.asked, fitted, self.refusals + 1)


def in_words(asked: Chat, refusal: InvalidRequest) -> Chat:
    """Asked for more in words, where the engine cannot go on with a begun answer: thinking models.

    Raises:
        InvalidRequest: `refusal`, where that was not what was asked, or not what was wrong.
    """
    if asked.bridge != "" or isinstance(refusal, PromptTooLong | UnsupportedField):
        raise refusal
    return asked.continued(prefill=False)
