"""A conversation as a value: asked, answered, edited, fitted into a window, saved and loaded back.

    chat = bourn.Chat(system="You are brief.").ask("What is a bourn?")
    with model.stream(chat.messages) as stream:
        for text in stream:
            print(text, end="", flush=True)
    chat = chat.answered(stream).ask("And an anabranch?")

The same value serves terminal, web and Python, waiting or not: it opens no stream and knows no
model, no tokenizer and no file.
"""

from __future__ import annotations

from bourn.chat.chat import CONTINUE, Chat
from bourn.chat.estimate import UNCALIBRATED, Estimate
from bourn.chat.fitting import Fitted, Room
from bourn.chat.roles import suited
from bourn.chat.turn import Turn

__all__ = ["CONTINUE", "UNCALIBRATED", "Chat", "Estimate", "Fitted", "Room", "Turn", "suited"]
