"""A stream for those who call transformers' `generate` themselves, in a thread of their own.

Knows nothing of bourn's engines: tokens come in by `put` and `end`, as `generate` calls them.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from bourn.engines.hf.tie import Tie, Tied
from bourn.errors import InvalidRequest, StreamClosed, StreamConsumed
from bourn.text.detokenize import REPLACEMENT, ContextDetokenizer

if TYPE_CHECKING:
    from torch import Tensor


class TextIteratorStreamer(Tied):
    """transformers' streamer of that name, but its reader never waits in vain.

        streamer = bourn.TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
        Thread(target=model.generate, kwargs={**inputs, "streamer": streamer}).start()
        for text in streamer:
            print(text, end="", flush=True)

    Each character comes as soon as later tokens cannot change it. All of them joined are what
    `tokenizer.decode` makes of the tokens; where a skipped prompt ends inside a character, that
    character comes once, whole. `async for` reads it too.

    What `generate` raises, the loop raises, after the text before it: whether it runs in a thread,
    an executor or `asyncio.to_thread`, before its first token too. Leaving the loop or the `with`,
    and `cancel()`, end `generate` at its next token; it returns what it has.

    One streamer is one answer, for one `generate` and one reader. Copying it gives the same one, so
    that settings which hold it may be copied.

    Limits. An error before `generate` is entered is seen only where it ends a `Thread` whose
    functions have the streamer in a variable; give a `timeout` where that is not so. A `generate`
    that is not transformers' own is ended by what `put` raises. A streamer that nobody begins to
    read goes on to its end.
    """

    def __init__(
        self,
        tokenizer: Any,
        skip_prompt: bool = False,  # noqa: FBT001, FBT002 (as in transformers)
        timeout: float | None = None,
        **decode_kwargs: Any,
    ) -> None:
        """Make one, to be given to `generate(..., streamer=)`.

        skip_prompt: leave the prompt out.
        timeout: seconds to wait for each token; None is without end. When they are over the
            generation is cancelled, and `queue.Empty` raised (TimeoutError by `async for`).
        decode_kwargs: for `tokenizer.decode`. As there, control tokens are shown unless
            `skip_special_tokens=True`. Spaces are never cleaned up.

        Raises:
            InvalidRequest: `clean_up_tokenization_spaces` is asked for.
        """
        self.tie = Tie(lambda: self._give(None))
        self.skip_prompt = skip_prompt
        self.timeout = timeout
        self._decode = _decoder(tokenizer, decode_kwargs)
        self._detokenizer: ContextDetokenizer | None = None  # there once the prompt is known
        self._texts: SimpleQueue[str | None] = SimpleQueue()  # None is the end
        self._tell: Callable[[], object] = bool
        self._parts: list[str] = []
        self._reading: Generator[str, None, None] | None = self._read()

    @property
    def text(self) -> str:
        """What was read so far."""
        return "".join(self._parts)

    @property
    def cancelled(self) -> bool:
        """Whether it was left before its end."""
        return self.tie.cancelled

    def __iter__(self) -> Generator[str, None, None]:
        """The text, as it becomes certain.

        Raises:
            Exception: what `generate` raised; the text before it has been given.
            Empty: no token came for `timeout` seconds.
            StreamConsumed: it was read before.
        """
        reading = self._claim()
        weakref.finalize(reading, self.cancel).atexit = False  # dropped, perhaps never begun
        return reading

    def __next__(self) -> str:
        """One text more, for those who iterate by hand; a loop may go on from there."""
        self._reading = self._claim()
        return next(self._reading)

    def __aiter__(self) -> AsyncGenerator[str, None]:
        """As iterating; raises TimeoutError instead of Empty."""
        self._claim()
        reading = self._aread()
        weakref.finalize(reading, self.cancel).atexit = False
        return reading

    def cancel(self) -> None:
        """End `generate` at its next token, and the reading now. Idempotent, from any thread."""
        self.tie.end(cancelled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    # -- what `generate` calls, in its thread --

    def put(self, value: Tensor) -> None:
        """The prompt at first, then each token.

        Raises:
            InvalidRequest: there are several prompts, or several answers.
            StreamClosed: nobody reads, and there is no better way to end what calls this.
        """
        if value.dim() > 1 and len(value) > 1:
            raise InvalidRequest(
                f"{len(value)} answers cannot go through one streamer",
                hint="call generate once for each, each with a streamer of its own",
            )
        if self.tie.over:
            if not self.tie.served:
                raise StreamClosed("nobody reads this stream any more")
            return
        ids: list[int] = value.flatten().tolist()
        if self._detokenizer is None:
            self._detokenizer = self._after_prompt(ids)
            ids = [] if self.skip_prompt else ids
        self._give(self._detokenizer.feed(ids))

    def end(self) -> None:
        """All tokens have come."""
        if self._detokenizer is not None and not self.tie.over:
            self._give(self._detokenizer.flush())
        self.tie.end()

    def _after_prompt(self, prompt: list[int]) -> ContextDetokenizer:
        """As if the answer stood alone, unless a character was begun before it."""
        inside = self.skip_prompt and self._decode(prompt[-8:]).endswith(REPLACEMENT)
        return ContextDetokenizer(self._decode, prompt if inside else ())

    def _give(self, text: str | None) -> None:
        self._texts.put(text)
        with suppress(RuntimeError):  # an event loop that has ended needs no news
            self._tell()

    # -- reading --

    def _claim(self) -> Generator[str, None, None]:
        reading, self._reading = self._reading, None
        if reading is None:
            raise StreamConsumed("this stream was read already", hint="its text is in `.text`")
        return reading

    def _read(self) -> Generator[str, None, None]:
        try:
            while (text := self._next()) is not None:
                if text:
                    self._parts.append(text)
                    yield text
        finally:
            self.cancel()
        self.tie.check()

    async def _aread(self) -> AsyncGenerator[str, None]:
        news = asyncio.Event()
        self._tell = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
        try:
            while (text := await self._anext(news)) is not None:
                if text:
                    self._parts.append(text)
                    yield text
        finally:
            self.cancel()
        self.tie.check()

    def _next(self) -> str | None:
        try:
            return self._texts.get(timeout=self.timeout)
        except Empty:
            raise Empty(f"no token came for {self.timeout} seconds") from None

    async def _anext(self, news: asyncio.Event) -> str | None:
        async with asyncio.timeout(self.timeout):
            while True:
                news.clear()
                with suppress(Empty):
                    return self._texts.get_nowait()
                await news.wait()


def _decoder(tokenizer: Any, options: dict[str, Any]) -> Callable[..., str]:
    """`tokenizer`: a processor will do too."""
    if options.get("clean_up_tokenization_spaces"):
        raise InvalidRequest(
            "clean_up_tokenization_spaces would take back text that was given",
            hint="leave it out, or clean up the whole text afterwards",
        )
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    if getattr(inner, "clean_up_tokenization_spaces", False):
        options = {**options, "clean_up_tokenization_spaces": False}
    return partial(tokenizer.decode, **options)
