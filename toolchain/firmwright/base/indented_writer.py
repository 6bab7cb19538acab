"""A writer of indented text."""

from collections.abc import Iterator
from contextlib import contextmanager


class IndentedWriter:
    """Lines of text, indented by the nesting of `with` blocks."""

    __slots__ = ("_indent", "_lines", "_step")

    def __init__(self, step: str = "  ") -> None:
        self._lines: list[str] = []
        self._indent = 0
        self._step = step

    def line(self, text: str = "") -> None:
        """Append one line at the current depth; an empty line has no blanks."""
        self._lines.append(self._step * self._indent + text if text else "")

    @contextmanager
    def indent(self) -> Iterator[None]:
        self._indent += 1
        try:
            yield
        finally:
            self._indent -= 1

    @contextmanager
    def block(self, head: str = "", *, brackets: str = "{}") -> Iterator[None]:
        """Write `head {`, the indented lines of the `with` block, and `}`."""
        self.line(f"{head} {brackets[0]}" if head else brackets[0])
        with self.indent():
            yield
        self.line(brackets[1:])

    def text(self) -> str:
        return "\n".join((*self._lines, ""))
