"""The page: what is where, and which act follows which click. Gradio draws it.

Acts give sights; here each becomes values of components. The components that grow with every sight
are few, and hold the last turn alone, so that an update costs the same whatever was said before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from bourn.errors import BournError
from bourn.types import DEFAULT_MAX_NEW_TOKENS
from bourn.web.acts import Acts, Visit
from bourn.web.answering import WRONG, in_plain_words
from bourn.web.desk import Desk
from bourn.web.knobs import KNOBS, read, written
from bourn.web.sight import Sight
from bourn.web.view import sound
from bourn.web.visitors import owner_of_request
from bourn.web.wishes import Wishes

logger = logging.getLogger(__name__)

_ASSETS = Path(__file__).parent / "assets"
_LATEX = [
    {"left": left, "right": right, "display": display}
    for left, right, display in (
        ("$$", "$$", True),
        (r"\[", r"\]", True),
        (r"\(", r"\)", False),
    )
]
_HEAD = """<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' \
viewBox='0 0 8 8'%3E%3Cpath d='M1 1h2v6H1zm3 2h3v2H4z' fill='%233b82f6'/%3E%3C/svg%3E">"""
"""The icon is in it, since the page asks this host for no pictures."""

_FONTS = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}

_NAMED = "() => new URL(location.href).searchParams.get('c') ?? ''"
"""The conversation that the address names by now, after Back or Forward."""

Updates = dict[Any, Any]
"""New values, by component."""

Event = Callable[..., Any]
"""A component's, such as `button.click`."""

Act = Callable[..., Awaitable[Sight]]
"""Given the visit, and what else it wants."""


def look() -> dict[str, Any]:
    """How the page looks and behaves in the browser: for `mount_gradio_app`."""
    script, media = ((_ASSETS / name).read_text("utf-8") for name in ("page.js", "media.css"))
    return {
        "theme": gr.themes.Default(primary_hue="blue", neutral_hue="slate", **_FONTS),
        "css_paths": [_ASSETS / "page.css"],
        "head": f"{_HEAD}\n<style>{media}</style>\n<script>{script}</script>",
    }


def page(desk: Desk, *, examples: Sequence[str] = (), keyed: bool = False) -> gr.Blocks:
    """The page for all that is served at this desk, first model first.

    examples: questions that are offered. keyed: visitors have logged in, and can log out.
    """
    with gr.Blocks(title="bourn", fill_height=True, analytics_enabled=False) as blocks:
        Page(blocks, desk, examples, keyed=keyed)
    return blocks


class Page:
    """The components, laid out in the open `gr.Blocks`, and what each click does."""

    def __init__(
        self, blocks: gr.Blocks, desk: Desk, examples: Sequence[str], *, keyed: bool
    ) -> None:
        self.acts = Acts(desk)
        self.talk = gr.Textbox(visible="hidden", elem_id="talk-id")
        self.turn = gr.Button(visible="hidden", elem_id="turn")  # pressed by the script
        self._sidebar(keyed=keyed)
        self._conversation(examples)
        self._composer()
        self._settings(desk.fleet.names)
        self._wire(blocks)

    # -- what is where -----------------------------------------------------------------------------
    # What can be folded is done by the script: what Gradio folds away misses its new values.

    def _sidebar(self, *, keyed: bool) -> None:
        with gr.Sidebar(elem_id="sidebar", width=280):
            self.fresh = gr.Button("New conversation", elem_id="fresh", size="md")
            self.talks = gr.Radio([], label="Conversations", elem_id="talks")
            gr.Button("This conversation", elem_id="fold-this", elem_classes="fold", size="md")
            with gr.Column(elem_id="this"):
                self.title = gr.Textbox(label="Name", elem_id="title", max_length=200)
                self.rename = gr.Button("Rename", elem_id="rename", size="sm")
                self.exports = gr.HTML(elem_id="exports")
                self.delete = gr.Button("Delete", elem_id="delete", size="sm", variant="stop")
            if keyed:
                gr.HTML(_LOG_OUT, elem_id="log-out")

    def _conversation(self, examples: Sequence[str]) -> None:
        alike: dict[str, Any] = {
            "height": None,
            "autoscroll": False,
            "show_label": False,
            "container": False,
            "buttons": ["copy"],
            "editable": "user",
            "latex_delimiters": _LATEX,
            "allow_tags": True,  # what is no tag of HTML is shown as it stands, and not left out
            "feedback_options": None,
        }
        with gr.Column(elem_id="talk", scale=1):
            self.past = gr.Chatbot(elem_id="past", label="What was said before", **alike)
            self.now = gr.Chatbot(
                elem_id="now",
                label="The last question and its answer",
                placeholder="## bourn\nAsk the model something.",
                examples=[{"text": text} for text in examples],
                **alike,
            )

    def _composer(self) -> None:
        with gr.Row(elem_id="acts"):
            self.status = gr.HTML(elem_id="status")
            self.again = gr.Button("Retry", elem_id="again", size="sm", visible=False)
            self.more = gr.Button("Continue", elem_id="more", size="sm", visible=False)
            self.undo = gr.Button("Undo", elem_id="undo", size="sm", visible=False)
        self.wrong = gr.HTML(elem_id="wrong")
        self.spoken = gr.HTML(elem_id="spoken")
        self.mark = gr.HTML(elem_id="mark")
        with gr.Row(elem_id="composer"):
            self.box = gr.Textbox(
                label="Message",
                show_label=False,
                placeholder="Ask something",
                elem_id="box",
                lines=1,
                max_lines=8,
                autofocus=True,
                scale=1,
            )
            self.send = gr.Button("Send", elem_id="send", variant="primary", min_width=80, scale=0)
            self.stop = gr.Button(
                "Stop", elem_id="stop", variant="stop", min_width=80, scale=0, visible=False
            )

    def _settings(self, models: Sequence[str]) -> None:
        own = "as the model"
        gr.Button("Settings", elem_id="fold-settings", elem_classes="fold", size="sm")
        with gr.Column(elem_id="settings"):
            self.model = gr.Dropdown(list(models), value=models[0], label="Model")
            self.system = gr.Textbox(label="System prompt", lines=2, max_lines=8)
            with gr.Row():
                self.temperature = _number("Temperature", own)
                self.top_p = _number("Top-p", own)
                self.most = _number("Max new tokens", f"{DEFAULT_MAX_NEW_TOKENS:,}")
                self.seed = _number("Seed", "any")
            self.ends = gr.Textbox(label="Stop strings", info="One a line.", lines=2, max_lines=6)
            self.keep = gr.Checkbox(
                label="Keep going when I leave",
                info="The answer is made to its end when this tab is closed or the network lost.",
                elem_id="keep",
            )

    @property
    def _wishes(self) -> list[Any]:
        sampling = [self.temperature, self.top_p, self.most, self.seed]
        return [self.model, self.system, *sampling, self.ends, self.keep]

    @property
    def _shown(self) -> list[Any]:
        buttons = [self.again, self.more, self.undo, self.send, self.stop]
        lines = [self.status, self.wrong, self.spoken, self.exports, self.mark]
        texts = [self.talk, self.talks, self.title, self.box]
        return [*texts, self.past, self.now, *lines, *buttons, *self._wishes]

    # -- which act follows which click -------------------------------------------------------------

    def _wire(self, blocks: gr.Blocks) -> None:
        acts, wishes = self.acts, self._wishes
        self._does(blocks.load, acts.open, None, follows=True)
        each = {"trigger_mode": "multiple"}  # else a click while one is being opened is dropped
        self._does(partial(self.talks.input, **each), acts.open, self.talks, follows=True)
        turned = partial(self.turn.click, js=_NAMED, **each)
        self._does(turned, acts.open, self.talk, follows=True)
        for event in (self.box.submit, self.send.click):
            self._does(event, _wished(acts.ask), self.talk, [*wishes, self.box], follows=True)
        self._does(self.again.click, _wished(acts.again), self.talk, wishes, follows=True)
        self._does(self.more.click, _wished(acts.more), self.talk, wishes, follows=True)
        self._with_data(self.now.example_select, self._example)
        self._with_data(self.past.edit, self._edit_past)
        self._with_data(self.now.edit, self._edit_now)
        self._does(self.fresh.click, acts.fresh, self.talk)
        self._does(self.undo.click, acts.undo, self.talk)
        self._does(self.rename.click, acts.rename, self.talk, [self.title])
        self._does(self.delete.click, acts.delete, self.talk)
        self._does(self.stop.click, acts.stop, self.talk)
        self._does(self.keep.input, acts.keep_going, self.talk, [self.keep])
        blocks.unload(self._left)

    def _does(
        self,
        event: Event,
        act: Act,
        talk: Any,
        inputs: Sequence[Any] = (),
        *,
        follows: bool = False,
    ) -> None:
        """An act, which waits behind nothing. follows: what comes of an answer is shown then.

        talk: holds the conversation's id; without it, it is the one that the address names.
        """

        async def run(request: gr.Request, talk: str | None = None, *given: Any) -> Updates:
            visit = _visit(request, talk)
            return self._updates(visit, await _safely(lambda: act(visit, *given)))

        held = [] if talk is None else [talk]
        done = event(run, [*held, *inputs], self._shown, queue=False, **_QUIET)
        if follows:
            self._follows(done)

    def _with_data(self, event: Event, act: Act) -> None:
        """An act that is told by the event what of the conversation it is about."""

        async def run(request: gr.Request, data: gr.EventData, talk: str, *wishes: Any) -> Updates:
            visit = _visit(request, talk)
            return self._updates(visit, await _safely(lambda: act(visit, data, read(*wishes))))

        inputs = [self.talk, *self._wishes]
        self._follows(event(run, inputs, self._shown, queue=False, **_QUIET))

    def _follows(self, done: Any) -> None:
        """Who may compute is the hub's business, not Gradio's.

        Gradio makes every output anew at each update, also those that stay: so these are few.
        """
        many: dict[str, Any] = {"trigger_mode": "multiple", "concurrency_limit": None}
        few = [self.now, self.status, self.spoken, self.wrong]
        followed = done.then(self._follow, [self.talk], few, **many, **_QUIET)
        self._does(followed.then, self.acts.settled, self.talk)

    async def _follow(self, request: gr.Request, talk: str | None) -> AsyncGenerator[Updates, None]:
        visit = _visit(request, talk or "")
        yield {self.spoken: gr.skip()}  # Gradio wants one at least
        try:
            async with aclosing(self.acts.follow(visit)) as sights:
                async for sight in sights:
                    yield self._updates(visit, sight)
        except Exception:  # whatever it is, the page stays usable
            logger.exception("the web page failed")
            yield {self.wrong: WRONG}

    async def _example(self, visit: Visit, data: gr.EventData, wishes: Wishes) -> Sight:
        return await self.acts.ask(visit, data.value["text"], wishes, example=True)

    async def _edit_past(self, visit: Visit, data: gr.EventData, wishes: Wishes) -> Sight:
        return await self.acts.edit(visit, _index(data), data.value, wishes)

    async def _edit_now(self, visit: Visit, data: gr.EventData, wishes: Wishes) -> Sight:
        return await self.acts.edit(visit, None, data.value, wishes)

    def _left(self, request: gr.Request) -> None:
        self.acts.left(request.session_hash or "")

    # -- what is to be seen ------------------------------------------------------------------------

    def _updates(self, visit: Visit, sight: Sight) -> Updates:
        """Only what a sight says, so that nothing else is drawn anew."""
        talk = visit.talk if sight.talk is None else sight.talk
        pairs: list[tuple[Any, Any]] = [
            (self.talk, sight.talk),
            (self.title, sight.title),
            (self.box, sight.draft),
            (self.past, sight.past),
            (self.now, sight.now),
            (self.spoken, _line(sight.spoken)),
            (self.status, _line(sight.status)),
            (self.wrong, _line(sight.wrong)),
        ]
        updates = {component: value for component, value in pairs if value is not None}
        if sight.talk is not None:
            updates[self.exports] = _exports(talk)
            updates[self.mark] = _mark(talk)
        if sight.talks is not None:
            choices = list(sight.talks)
            known = talk if talk in {each for _, each in choices} else None
            updates[self.talks] = gr.Radio(choices, value=known)
        if sight.busy is not None:
            updates |= self._buttons(sight)
        if sight.wishes is not None:
            updates |= dict(zip(self._wishes, _values(sight.wishes), strict=True))
        return updates or {self.wrong: gr.skip()}  # Gradio takes no less

    def _buttons(self, sight: Sight) -> Updates:
        idle = not sight.busy
        there = idle and bool(sight.talk)
        return {
            self.send: gr.Button(visible=idle),
            self.stop: gr.Button(visible=not idle),
            self.again: gr.Button(visible=there),
            self.undo: gr.Button(visible=there),
            self.more: gr.Button(visible=there and bool(sight.can_continue)),
        }


async def _safely(act: Callable[[], Awaitable[Sight]]) -> Sight:
    """What it gives; and where it fails, what to tell. Gradio would show that alone, or nothing."""
    try:
        return await act()
    except BournError as error:
        return Sight(wrong=in_plain_words(error))
    except Exception:  # whatever it is, the page stays usable
        logger.exception("the web page failed")
        return Sight(wrong=WRONG)


def _wished(act: Act) -> Act:
    """Given the values of the settings, and then what the act takes before them."""

    async def wished(visit: Visit, *given: Any) -> Sight:
        return await act(visit, *given[KNOBS:], read(*given[:KNOBS]))

    return wished


def _visit(request: gr.Request, talk: str | None) -> Visit:
    """talk: the conversation's id, "" for a new one; None is the one that the address names."""
    named = request.query_params.get("c") if talk is None else talk
    return Visit(owner_of_request(request), request.session_hash or "", named or "")


def _index(data: gr.EventData) -> int:
    """Of the message that was edited."""
    index = data.index
    return int(index[0] if isinstance(index, list | tuple) else index)


def _mark(talk: str) -> str:
    """For the script: the conversation that is shown, and another text whenever that is told."""
    return f'<span data-talk="{escape(talk)}" data-at="{time.monotonic_ns()}"></span>'


def _values(wishes: Wishes) -> list[Any]:
    model, *others = written(wishes)
    return [model or gr.skip(), *others]


def _line(text: str | None) -> str | None:
    return None if text is None else escape(sound(text))


def _exports(talk: str) -> str:
    if not talk:
        return ""
    links = (("md", "Markdown"), ("json", "JSON"))
    return "Save as " + " or ".join(
        f'<a href="/conversations/{escape(talk)}.{end}" download>{name}</a>' for end, name in links
    )


def _number(label: str, otherwise: str) -> gr.Textbox:
    """For a number that need not be given: Gradio's own field shows 0 then."""
    return gr.Textbox(label=label, placeholder=otherwise, max_lines=1, min_width=120)


_LOG_OUT = (
    '<form method="post" action="/logout"><button class="sm secondary">Log out</button></form>'
)

_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
