"""A server that speaks OpenAI's wire: whether it does so as its clients need it.

It is asked two small things over the raw wire, and what came is looked at, check by check.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bourn.doctor.finding import CannotTell, Checks, Finding, broken, note, ok, run, warning
from bourn.doctor.hangup import HangUp, Patience, hang_up
from bourn.doctor.raw import Exchange, exchange
from bourn.engines.dialects import BY_KIND
from bourn.errors import BournError

if TYPE_CHECKING:
    from bourn.engines.base import ModelInfo
    from bourn.engines.http import Endpoint
    from bourn.engines.remote import Remote

_LIMIT = 5
"""Tokens of the short answer, which needs far more."""

_LONG = 2000
"""Tokens of the answer that is hung up on."""

_NOTHING = "nothing can be asked of it"
_QUESTION = "Write the numbers from one to a thousand, in words."


@dataclass(frozen=True, slots=True)
class Probed:
    """short: an answer that was cut by a limit of so many tokens.

    takes_options: whether it takes `stream_options`. hang_up: or why it could not be told.
    """

    short: Exchange
    limit: int = _LIMIT
    takes_options: bool = True
    hang_up: HangUp | CannotTell = CannotTell("it was not tried")  # noqa: RUF009  # only read

    @property
    def answer(self) -> Exchange:
        """The short answer.

        Raises:
            CannotTell: there was none.
        """
        if self.short.error:
            raise CannotTell("there was no answer to look at")
        return self.short


async def examine(
    remote: Remote, *, ask: bool = True, patience: Patience | None = None
) -> AsyncGenerator[Finding]:
    """The findings. ask: whether it may be asked for answers; else only what it lists is told."""
    try:
        info = await remote.start()
    except BournError as error:
        yield replace(broken(str(error), _NOTHING, error.hint), check="endpoint")
        return
    try:
        window = f", a window of {info.window:,} tokens" if info.window else ""
        yield replace(ok(f"{info.name}, on {info.engine}{window}"), check="endpoint")
        if ask:
            for finding in run(CHECKS, await probe(remote.endpoint, info, patience or Patience())):
                yield finding
    finally:
        await remote.aclose()


# -- asking ----------------------------------------------------------------------------------------


async def probe(wire: Endpoint, info: ModelInfo, patience: Patience) -> Probed:
    """Ask for a short answer, and for a long one that nobody reads to its end."""
    takes_options = True
    short = await exchange(wire, _body(info, _LIMIT), patience.answer)
    if short.status in (400, 422):  # it may be that it knows no stream_options
        plain = await exchange(wire, _body(info, _LIMIT, options=False), patience.answer)
        takes_options, short = (False, plain) if not plain.error else (True, short)
    if short.error:
        return Probed(short)
    tokens = min(_LONG, (info.window or 2 * _LONG) // 2)
    try:
        hung_up: HangUp | CannotTell = await hang_up(
            wire, lambda count: _body(info, count, options=takes_options), tokens, patience
        )
    except (CannotTell, BournError) as reason:
        hung_up = CannotTell(str(reason))
    return Probed(short, _LIMIT, takes_options, hung_up)


def _body(info: ModelInfo, tokens: int, *, options: bool = True) -> Mapping[str, Any]:
    """As any client of OpenAI's would ask."""
    body: dict[str, Any] = {
        "model": info.name,
        "messages": [{"role": "user", "content": _QUESTION}],
        "stream": True,
        BY_KIND[info.engine].limit: tokens,
    }
    if options:
        body["stream_options"] = {"include_usage": True}
    if "ignore_eos" in info.honours:
        body["ignore_eos"] = True
    return body


# -- checks ----------------------------------------------------------------------------------------


def answer(probed: Probed) -> Finding:
    if probed.short.error:
        return broken(probed.short.error, _NOTHING, "see the server's log")
    return ok(f"the first bytes came after {probed.short.first or 0:.2f} s")


def content_type(probed: Probed) -> Finding:
    told = probed.answer.content_type
    if told.partition(";")[0].strip().lower() == "text/event-stream":
        return ok("text/event-stream")
    return warning(
        f"a stream is sent as {told or 'nothing'}",
        "browsers and strict clients refuse it, and proxies may hold it back",
        "let it send Content-Type: text/event-stream",
    )


def framing(probed: Probed) -> Finding:
    said = probed.answer
    if said.strays or said.broken_json:
        line = (said.strays or said.broken_json)[0]
        return broken(
            f"not all of it is server-sent events of JSON: {line[:60]!r}",
            "a client skips such a line, or fails over it: text is lost",
            "let each event be `data: `, JSON in one line, and an empty line",
        )
    if not said.chunks:
        return broken(
            "the stream is empty", "clients take that for an empty answer", "see the server's log"
        )
    if "\r" in said.text or _is_unspaced(said):
        what = "\\r ends lines" if "\r" in said.text else "there is no space after `data:`"
        return note(
            what,
            "both are allowed, but there are clients that lose every event over it",
            "end lines with \\n, and write `data: `",
        )
    return ok(f"{len(said.data)} events, each of them one line of data")


def _is_unspaced(said: Exchange) -> bool:
    return any(line.startswith("data:") and not line.startswith("data: ") for line in said.lines)


def role_chunk(probed: Probed) -> Finding:
    deltas = probed.answer.deltas
    roles = [delta["role"] for delta in deltas if delta.get("role")]
    if deltas and deltas[0].get("role") == "assistant":
        return ok("the first chunk names the role" + (", and so do later ones" * (len(roles) > 1)))
    return note(
        "the first chunk does not say that it is the assistant's",
        "clients that put a message together from its parts have none to begin with",
        'let the first delta be {"role": "assistant", "content": ""}',
    )


def finish_reason(probed: Probed) -> Finding:
    said, limit = probed.answer, probed.limit
    if said.finish is None:
        return broken(
            "there is no finish reason",
            "a whole answer and one that broke off look alike",
            'let the last chunk of each choice have "finish_reason"',
        )
    if said.finish == "length" or (said.generated is not None and said.generated < limit):
        return ok(f"{said.finish}, after {said.generated or limit} tokens of {limit}")
    return broken(
        f"it is {said.finish!r} for an answer that was cut after {limit} tokens",
        "nobody can tell that an answer, or a tool's arguments, is not whole",
        'let it be "length" where the limit ends an answer',
    )


def usage(probed: Probed) -> Finding:
    said = probed.answer
    if not probed.takes_options:
        return warning(
            "it refuses stream_options",
            "clients that ask for usage, as most do, get an error",
            "let it take them, or pass over them",
        )
    if said.usage is None or said.generated is None:
        return warning(
            "none is sent, though it was asked for",
            "clients can only guess what a conversation takes of the window",
            "let a last chunk with empty choices have usage, where stream_options asks for it",
        )
    if said.generated > probed.limit:
        return warning(
            f"it counts {said.generated} tokens where {probed.limit} were allowed",
            "the limit, or the count, is not what it seems",
            "see how the server counts",
        )
    return ok(f"{said.usage.get('prompt_tokens', '?')} tokens read, {said.generated} written")


def end_mark(probed: Probed) -> Finding:
    if probed.answer.done:
        return ok("[DONE]")
    return warning(
        "the stream ends without [DONE]",
        "clients that wait for it hang, or take the answer for broken off",
        "let `data: [DONE]` be the last event",
    )


def on_hang_up(probed: Probed) -> Finding:
    told = probed.hang_up
    if isinstance(told, CannotTell):
        raise CannotTell(f"could not be told: {told}")
    if told.stopped:
        return ok(f"it was free {told.after:.2f} s after a client had gone (by {told.how})")
    return broken(
        f"it was still busy {told.after:.1f} s after a client had gone (by {told.how})",
        "it computes for nobody, and whoever asks next waits for that",
        "upgrade it; and see that no proxy between keeps the connection open",
    )


CHECKS: Checks[Probed] = {
    "answer": answer,
    "content type": content_type,
    "framing": framing,
    "role chunk": role_chunk,
    "finish reason": finish_reason,
    "usage": usage,
    "end mark": end_mark,
    "hang-up": on_hang_up,
}
