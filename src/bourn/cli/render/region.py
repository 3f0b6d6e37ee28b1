"""What of the open block is on the screen, and the least to write to have it otherwise.

It knows rows and a size; no Markdown. Above the open block nothing is ever touched. It trusts no
column: it counts rows, and goes back to the start of one.
"""

from __future__ import annotations

from bourn.cli.render.rows import Row, ansi, extension, height, ink


class Region:
    """The last rows that were written, with the cursor at their end.

    reflows: on a resize the terminal wraps anew what it shows.
    """

    def __init__(self, *, reflows: bool = True) -> None:
        self.rows: list[Row] = []
        self.frozen = 0  # of its first rows: they have left the screen
        self._reflows = reflows
        self._columns = self._lines = 0
        self._fresh = True  # the cursor is at the start of an empty row
        self._hidden: list[Row] = []  # what has left the screen at another width
        self._written: list[str] = []

    @property
    def room(self) -> int:
        """The most rows that can still be reached."""
        return max(self._lines - 1, 1)

    def take(self) -> str:
        """All that is to be written now."""
        written, self._written = "".join(self._written), []
        return written

    def resize(self, columns: int, lines: int) -> None:
        """The terminal's size. Where rows may lie otherwise now, they are taken off the screen."""
        narrower = columns < self._columns
        changed = columns != self._columns and self._columns > 0
        self._columns, self._lines = columns, lines
        if changed and len(self.rows) > self.frozen:
            self._clear(narrower=narrower and self._reflows)
        self.frozen = max(self.frozen, len(self.rows) - self.room)

    def fits(self, rows: list[Row]) -> bool:
        """Whether they begin as what has left the screen."""
        return rows[: self.frozen] == self.rows[: self.frozen]

    def show(self, rows: list[Row]) -> None:
        """Have these rows in place of those before; rows off the screen stay as they were."""
        if self._hidden:
            self._skip(rows)
        at = self._first_change(rows)
        if at < len(self.rows):
            more = self._more(rows, at)
            if more is not None:
                self._written.append(ansi(more))
                at += 1
            else:
                at = self._repaint(rows, at)
        for row in rows[at:]:
            self._next_row()
            self._written.append(ansi(row))
        self.rows = self.rows[: self.frozen] + rows[self.frozen :]
        self.frozen = max(self.frozen, len(rows) - self.room)

    def settle(self, count: int | None = None) -> None:
        """The first `count` rows, or all, are done with."""
        count = len(self.rows) if count is None else count
        self.rows = self.rows[count:]
        self.frozen = max(0, self.frozen - count)

    def end(self) -> None:
        """Let what follows begin on a row of its own."""
        if not self._fresh:
            self._written.append("\r\n")
            self._fresh = True

    def _first_change(self, rows: list[Row]) -> int:
        at = self.frozen
        while at < min(len(rows), len(self.rows)) and rows[at] == self.rows[at]:
            at += 1
        if at == len(rows) < len(self.rows) and at > self.frozen:
            at -= 1  # the cursor has to end behind a row that stays
        return at

    def _more(self, rows: list[Row], at: int) -> Row | None:
        """What only has to be added to the last row."""
        if at == len(self.rows) - 1 and at < len(rows) and not self._fresh:
            return extension(self.rows[at], rows[at])
        return None

    def _repaint(self, rows: list[Row], at: int) -> int:
        """Write over the rows from `at` on; how many are right then."""
        self._climb_to(at)
        over = rows[at : len(self.rows)]
        self._written.append("\x1b[K\r\n".join(map(ansi, over)))
        self._written.append("\x1b[J" if len(rows) <= len(self.rows) else "\x1b[K")
        self._fresh = not over
        return at + len(over)

    def _climb_to(self, at: int) -> None:
        """To the start of a row, where each is one row high."""
        self._climb(len(self.rows) - at - (not self._fresh))

    def _climb(self, count: int) -> None:
        self._written.append("\r" + (f"\x1b[{count}A" if count else ""))

    def _next_row(self) -> None:
        if not self._fresh:
            self._written.append("\r\n")
        self._fresh = False

    def _clear(self, *, narrower: bool) -> None:
        """Take the rows that can be reached off the screen, as high as they are by now."""
        first, total = len(self.rows), 0
        while first > self.frozen:
            tall = height(self.rows[first - 1], self._columns) if narrower else 1
            if total + tall > self.room:
                break
            first, total = first - 1, total + tall
        if total:
            self._climb(total - (not self._fresh))
            self._written.append("\x1b[J")
            self._fresh = True
        self._hidden += self.rows[:first]
        self.rows, self.frozen = [], 0

    def _skip(self, rows: list[Row]) -> None:
        """Take the first rows for those that left the screen at another width."""
        hidden, passed, count = ink(self._hidden), 0, 0
        while passed < hidden and count < len(rows):
            passed += ink(rows[count : count + 1])
            count += passed <= hidden
        for row in reversed(self._hidden):  # lines, and empty rows
            if ink([row]) or ink(rows[count : count + 1]):
                break
            count += 1
        self.rows, self.frozen, self._hidden = rows[:count], count, []
