"""Tokenizer of the IR's text format, and functions that format tokens.

Errors are ModelErrors at FILE:LINE:COLUMN, counted from 1. `;` and `//` start comments.
Identifiers may contain dots (`nn.conv2d`). `%name` and `@name` are quoted if they hold
characters other than letters, digits, `_`, `.` and `$`. A minus before digits belongs
to the number unless an operand precedes it. `inf` and `nan` are floats.
"""

import enum
import re
from dataclasses import dataclass

from firmwright.base.errors import ModelError


class TokenKind(enum.Enum):
    """The kind of a token; the enum's value is its name in error messages."""

    IDENT = "an identifier"
    LOCAL = "a %name"
    GLOBAL = "an @name"
    INT = "an integer"
    FLOAT = "a float"
    STRING = "a string"
    PUNCT = "punctuation"
    END = "the end of the text"


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `text` as written, `value` decoded: a number, a name without sigil."""

    kind: TokenKind
    text: str
    value: str | int | float
    offset: int


_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n]+|;[^\n]*|//[^\n]*)+)
  | (?P<float>-?(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
            |inf\b(?![.$]))|nan\b(?![.$]))
  | (?P<int>-?(?:0[xX][0-9a-fA-F]+|[0-9]+))
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
  | (?P<name>[%@](?:[A-Za-z0-9_.$]+|"(?:[^"\\\n]|\\.)*"))
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<punct>->|=>|==|!=|<=|>=|<<|>>|&&|\|\||\+=|\.\.|[()\[\]{}<>,:=+\-*/%&|^~!?.@\#])
    """,
    re.VERBOSE,
)
_OPERAND_END = re.compile(r"[A-Za-z0-9_.$)\]\"]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$]+\Z")
_ESCAPE = re.compile(
    r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL
)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_WRITTEN_ESCAPES = {value: f"\\{key}" for key, value in _SIMPLE_ESCAPES.items()}


def quote(text: str) -> str:
    """Return `text` as a string token in ASCII."""
    return '"' + "".join(_escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char in _WRITTEN_ESCAPES:
        return _WRITTEN_ESCAPES[char]
    code = ord(char)
    if 0x20 <= code < 0x7F:
        return char
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_local(name: str) -> str:
    return "%" + (name if _PLAIN_NAME.match(name) else quote(name))


def format_global(name: str) -> str:
    return "@" + (name if _PLAIN_NAME.match(name) else quote(name))


def format_float(value: float) -> str:
    """Return the shortest float token that reads back to the same double."""
    return repr(float(value))


class Tokenizer:
    """A tokenizer with one token of lookahead."""

    __slots__ = ("_file", "_peeked", "_position", "_text")

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._position = 0
        self._peeked: Token | None = None

    @property
    def peek(self) -> Token:
        if self._peeked is None:
            self._peeked = self._scan()
        return self._peeked

    @property
    def at_end(self) -> bool:
        return self.peek.kind is TokenKind.END

    def next(self) -> Token:
        """Consume and return the next token; END repeats."""
        token = self.peek
        self._peeked = None
        return token

    def at(self, text: str) -> bool:
        """Whether the next token is this punctuation or identifier."""
        return self.peek.text == text and self.peek.kind in (
            TokenKind.PUNCT,
            TokenKind.IDENT,
        )

    def accept(self, text: str) -> bool:
        """Consume the next token if it matches; return whether it did."""
        if not self.at(text):
            return False
        self.next()
        return True

    def expect(self, text: str) -> Token:
        """Consume this punctuation or identifier; ModelError if another follows."""
        if not self.at(text):
            raise self.error(f"found {self._describe(self.peek)}, expected {text!r}.")
        return self.next()

    def ident(self) -> str:
        return str(self._take(TokenKind.IDENT).value)

    def local(self) -> str:
        return str(self._take(TokenKind.LOCAL).value)

    def global_(self) -> str:
        return str(self._take(TokenKind.GLOBAL).value)

    def string(self) -> str:
        return str(self._take(TokenKind.STRING).value)

    def int_(self) -> int:
        return int(self._take(TokenKind.INT).value)

    def float_(self) -> float:
        if self.peek.kind is TokenKind.INT:
            token = self.next()
            try:
                return float(token.value)
            except OverflowError:
                what = f"{token.text} is too large for a float."
                raise self.error(what, token) from None
        return float(self._take(TokenKind.FLOAT).value)

    def where(self, token: Token | None = None) -> str:
        return self._where((token or self.peek).offset)

    def error(self, what: str, token: Token | None = None) -> ModelError:
        return ModelError(what, where=self.where(token))

    def _take(self, kind: TokenKind) -> Token:
        if self.peek.kind is not kind:
            found = self._describe(self.peek)
            raise self.error(f"found {found}, expected {kind.value}.")
        return self.next()

    def _where(self, offset: int) -> str:
        line = self._text.count("\n", 0, offset) + 1
        column = offset - (self._text.rfind("\n", 0, offset) + 1) + 1
        return f"{self._file}:{line}:{column}"

    @staticmethod
    def _describe(token: Token) -> str:
        if token.kind is TokenKind.END:
            return str(token.kind.value)
        shown = token.text if len(token.text) <= 40 else f"{token.text[:37]}..."
        return repr(shown)

    def _scan(self) -> Token:
        match = _TOKEN.match(self._text, self._position)
        if match and match.lastgroup == "space":
            self._position = match.end()
            match = _TOKEN.match(self._text, self._position)
        start = self._position
        if start == len(self._text):
            return Token(TokenKind.END, "", "", start)
        if match is None:
            char = self._text[start]
            is_quoted = char in '"%@'
            what = "an unterminated string" if is_quoted else "an unexpected character"
            raise ModelError(f"{what}, {char!r}.", where=self._where(start))
        kind, text = match.lastgroup, match.group()
        follows_operand = start > 0 and _OPERAND_END.match(self._text, start - 1)
        if text[0] == "-" and kind in ("int", "float") and follows_operand:
            kind, text = "punct", "-"
        self._position = start + len(text)
        return self._token(str(kind), text, start)

    def _token(self, kind: str, text: str, start: int) -> Token:
        match kind:
            case "int":
                return Token(TokenKind.INT, text, self._int(text, start), start)
            case "float":
                self._end_of_number(text, start)
                return Token(TokenKind.FLOAT, text, float(text), start)
            case "ident":
                return Token(TokenKind.IDENT, text, text, start)
            case "name":
                sigil = TokenKind.LOCAL if text[0] == "%" else TokenKind.GLOBAL
                quoted = text[1] == '"'
                name = self._unquote(text[1:], start + 1) if quoted else text[1:]
                return Token(sigil, text, name, start)
            case "string":
                return Token(TokenKind.STRING, text, self._unquote(text, start), start)
        return Token(TokenKind.PUNCT, text, text, start)

    def _int(self, text: str, start: int) -> int:
        self._end_of_number(text, start)
        if len(text) > 40:
            what = f"an integer of {len(text)} characters is too long."
            raise ModelError(what, where=self._where(start))
        return int(text, 16) if text.lstrip("-")[:2] in ("0x", "0X") else int(text)

    def _end_of_number(self, text: str, start: int) -> None:
        after = self._text[start + len(text) : start + len(text) + 1]
        if after and (after.isalnum() or after == "_"):
            what = f"the number {text}{after} is malformed."
            raise ModelError(what, where=self._where(start))

    def _unquote(self, text: str, start: int) -> str:
        def decode(match: re.Match[str]) -> str:
            body = str(match.group(1))
            if body in _SIMPLE_ESCAPES:
                return _SIMPLE_ESCAPES[body]
            if len(body) > 1 and int(body[1:], 16) <= 0x10FFFF:
                return chr(int(body[1:], 16))
            where = self._where(start + 1 + match.start())
            raise ModelError(f"the escape \\{body} is unknown.", where=where)

        return _ESCAPE.sub(decode, text[1:-1])
