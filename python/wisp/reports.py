"""How reports show themselves: one line in a terminal, a table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

__all__ = ["Table", "human_bytes", "human_count", "human_seconds"]


T = TypeVar("T")


def human_bytes(count: float) -> str:
    """4,130,000 as "4.13 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def human_count(count: int) -> str:
    """With thousands apart."""
    return f"{count:,}"


def human_seconds(seconds: float) -> str:
    """From milliseconds to days."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


class Table(list[T]):
    """A list whose repr is a table; a notebook shows it as one."""

    def __init__(
        self,
        rows: Iterable[T],
        columns: dict[str, Callable[[T], str]],
        title: str = "",
    ) -> None:
        super().__init__(rows)
        self._columns = columns
        self._title = title

    def _cells(self) -> list[Sequence[str]]:
        return [[show(row) for show in self._columns.values()] for row in self]

    def __repr__(self) -> str:
        lines = [list(self._columns), *self._cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self._columns))]
        shown = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self._title] * bool(self._title) + shown)

    def _repr_html_(self) -> str:
        return html_table(self._title, list(self._columns), self._cells())


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table; all text is escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    body = "".join(line("td", row) for row in rows)
    return f"<table>{caption}{line('th', head) if head else ''}{body}</table>"


def give_repr(cls: type[T], show: Callable[[T], list[tuple[str, str]]]) -> None:
    """Gives a class of the native module a repr; `show` yields (label, text) pairs."""

    def text(self: T) -> str:
        pairs = ", ".join(f"{label} {value}" if label else value for label, value in show(self))
        return f"<{cls.__name__} {pairs}>"

    def table(self: T) -> str:
        return html_table(cls.__name__, [], show(self))

    cls.__repr__ = text  # type: ignore[method-assign, assignment]
    cls._repr_html_ = table  # type: ignore[attr-defined]
