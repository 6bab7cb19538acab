"""A writer of C source: indentation, blocks, comments, and line breaks at 100 columns.

In comments and strings, which may come from a user's model, unsafe sequences are
replaced.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from firmwright.base.indented_writer import IndentedWriter

LINE_COLUMNS = 100
INDENT_COLUMNS = 4

# Line breaks are possible after a comma, an assignment or a call's bracket, and before
# an operator. The cost is the number of columns by which a break must be later than a
# free one to be chosen.
_BREAKS = re.compile(
    r"(?P<comma>(?<=,) )|(?P<logical> (?=(?:&&|\|\||[?:]) ))|(?P<assign>(?<=[^=!<>]=) )"
    r"|(?P<call>(?<=\w\()(?=[^)]))|(?P<other> (?=(?:[-+*/%&|^<>]|<<|>>|[<>=!]=) ))"
)
_COST = {"comma": 0, "logical": 0, "assign": 30, "call": 15, "other": 45}
_DEPTH_COST = 40
_WORD = re.compile(r"[^ ;]*[ ;]+|[^ ;]+")
_DIGRAPH = re.compile(r"(\*(?=/)|/(?=\*)|\?(?=\?))")
_NOT_COMMENT = re.compile(r"[^\x20-\x7e]")


class CWriter(IndentedWriter):
    """A writer of C lines; continuation lines are indented by one more level."""

    __slots__ = ()

    def __init__(self, depth: int = 0) -> None:
        super().__init__(" " * INDENT_COLUMNS)
        self._indent = depth

    def line(self, text: str = "") -> None:
        """Add one logical line, wrapped if necessary, except for directives."""
        if text.startswith("#"):
            self.raw(text)
            return
        width = LINE_COLUMNS - INDENT_COLUMNS * self._indent
        for index, part in enumerate(wrap_line(text, width)):
            super().line(" " * INDENT_COLUMNS + part if index else part)

    def gap(self) -> None:
        """Add a blank line, except after another or at the beginning of a block."""
        if self._lines and self._lines[-1] and not self._lines[-1].endswith("{"):
            self.line()

    def raw(self, text: str) -> None:
        self._lines.append(text)

    @contextmanager
    def function(self, signature: str) -> Iterator[None]:
        """Write a function's signature and braces; wrap it unless it has breaks."""
        if "\n" in signature:
            for line in signature.split("\n"):
                self.raw(line)
        else:
            self.line(signature)
        self.line("{")
        with self.indent():
            yield
        self.line("}")

    def comment(self, lines: Sequence[str]) -> None:
        safe = list(wrap_comment(lines, LINE_COLUMNS - INDENT_COLUMNS * self._indent))
        if len(safe) == 1:
            self.line(f"/* {safe[0]} */")
            return
        self.line(f"/* {safe[0]}")
        for text in safe[1:]:
            super().line(f" * {text}".rstrip())
        self.line(" */")


def format_lines(text: str, depth: int = 1) -> str:
    """Return lines of C at this depth of blocks, without the last line break."""
    out = CWriter(depth)
    for line in text.strip("\n").splitlines():
        out.line(line)
    return out.text()[:-1]


def format_comment(lines: Sequence[str]) -> str:
    out = CWriter()
    out.comment(lines)
    return out.text()[:-1]


def wrap_comment(lines: Iterable[str], columns: int = LINE_COLUMNS) -> Iterator[str]:
    """Wrap the lines of a comment to `columns`, leaving room for its delimiters."""
    room = columns - len(" * ") - len(" */")
    for text in lines:
        line = ""
        for word in _words(escape_comment(text), room - 2):
            if line.strip() and len(line) + len(word.rstrip()) > room:
                yield line.rstrip()
                line = "  "
            line += word
        yield line.rstrip()


def _words(text: str, longest: int) -> Iterator[str]:
    """Split a comment line after spaces and semicolons, and words over `longest`."""
    for word in _WORD.findall(text):
        for start in range(0, len(word), longest):
            yield word[start : start + longest]


def escape_comment(text: str) -> str:
    plain = _NOT_COMMENT.sub("?", text.replace("\\", "/"))
    return _DIGRAPH.sub(r"\1 ", plain)


def format_c_string(text: str) -> str:
    """Format a C string literal in UTF-8, with octal escapes for non-ASCII bytes."""
    return '"' + "".join(map(_string_byte, text.encode("utf-8"))) + '"'


def _string_byte(byte: int) -> str:
    char = chr(byte)
    if char in '"\\?':
        return f"\\{char}"
    return char if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def wrap_line(text: str, width: int) -> Iterator[str]:
    """Wrap a line at `width`; continuation lines are one level deeper."""
    room = width
    while len(text) > room and (at := _best_break(text, room)) is not None:
        yield text[:at].rstrip()
        text = text[at:].lstrip()
        room = width - INDENT_COLUMNS
    yield text


def _best_break(text: str, width: int) -> int | None:
    """Return the best position for a line break: late, at low bracket depth."""
    # A break is at most at `width`, and two characters make a "/*".
    depths = _depths(text[: width + 2])
    best: tuple[int, int] | None = None
    for match in _BREAKS.finditer(text):
        at = match.start()
        if at > width:
            break
        if at < 2 * INDENT_COLUMNS or depths[at] < 0:
            continue
        depth = depths[at] - (match.lastgroup == "call")
        score = depth * _DEPTH_COST + _COST[str(match.lastgroup)] - at
        if best is None or score <= best[0]:
            best = (score, at)
    return best[1] if best else None


def _depths(text: str) -> list[int]:
    """Return the bracket depth before each character; negative in text and comments."""
    depths, depth, quoted, comment = [], 0, False, False
    for index, char in enumerate(text):
        comment = comment or text.startswith("/*", index)
        depths.append(-1 if quoted or comment else depth)
        if char == '"' and not comment and text[index - 1 : index] != "\\":
            quoted = not quoted
        depth += (char in "([{") - (char in ")]}")
        if text[max(index - 1, 0) : index + 1] == "*/":
            comment = False
    return depths
