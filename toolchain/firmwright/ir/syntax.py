"""What both levels of the IR share in text: names, attributes, types, spans, line breaking.

In: values of `ir/core.py` and `TensorType`, or tokens. Out: text, or the values again. Invariant:
what a `format_*` function gives, the `SyntaxParser` method of the same noun reads back to an equal
value.

A newline inside a formatted string is a place where a long line may be broken; `IRWriter.put`
turns it into a blank otherwise. (Quoted strings never hold a newline, so nothing else is touched.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from firmwright.base.dtypes import DType, find_dtype
from firmwright.base.errors import InternalError, ModelError
from firmwright.base.quant import Quantization
from firmwright.base.text import IndentedWriter, Token, Tokenizer, TokenKind, format_float, quote
from firmwright.ir.core import UNCONSTRAINED, Attr, Attrs, Span, VirtualDevice
from firmwright.ir.graph.nodes import TensorType

COLUMNS = 100
NESTING_MAX = 150
"""Open brackets and operands a reader follows at once before it calls a text hostile."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
_NOT_WORDS = frozenset({"inf", "nan", "true", "false"})  # these are other tokens or values
T = TypeVar("T")


class IRWriter(IndentedWriter):
    """A writer that breaks long lines where their text allows it."""

    __slots__ = ()

    def put(self, text: str) -> None:
        """One line, continued four columns further in if it would pass column 100."""
        room = COLUMNS - len(self._step) * self._indent
        flat = text.replace("\n", " ")
        if len(flat) <= room:
            self.line(flat)
            return
        current = ""
        first = True
        for piece in text.split("\n"):
            if current and len(current) + 1 + len(piece) > room - (0 if first else 4):
                self.line(current if first else "    " + current)
                first, current = False, ""
            current = f"{current} {piece}" if current else piece
        self.line(current if first else "    " + current)


def format_word(text: str) -> str:
    """`text` bare where it is an identifier, else quoted."""
    return text if _WORD.match(text) and text not in _NOT_WORDS else quote(text)


def format_attr(value: Attr) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return format_float(value)
        case str():
            return quote(value)
        case tuple():
            return "[" + ",\n".join(map(format_attr, value)) + "]"
        case _:
            raise InternalError(f"an attribute has the value {value!r}, which has no text form")


def format_attrs(attrs: Attrs) -> str:
    """`{name=value, ...}`."""
    return "{" + ",\n".join(f"{format_word(k)}={format_attr(v)}" for k, v in attrs.items()) + "}"


def format_shape(dtype: DType, shape: tuple[int, ...]) -> str:
    return f"{dtype.short}[{','.join(map(str, shape))}]"


def format_span(span: Span) -> str:
    tensor = f", {quote(span.tensor)}" if span.tensor else ""
    return f"span({quote(span.file)}, {span.subgraph}, {span.op_index}{tensor})"


def format_quantization(quantization: Quantization) -> str:
    """`quant(SCALES, ZEROS)`: a list per channel; equal zero points are written once."""
    scales, zeros = quantization.scales, quantization.zero_points
    if quantization.axis is None:
        return f"quant({format_float(scales[0])}, {zeros[0]})"
    same = len(set(zeros)) == 1
    zero = str(zeros[0]) if same else "[" + ",\n".join(map(str, zeros)) + "]"
    scale = ",\n".join(map(format_float, scales))
    return f"quant([{scale}],\n{zero}, axis={quantization.axis})"


def format_type(kind: TensorType) -> str:
    text = format_shape(kind.dtype, kind.shape)
    return f"{text}\n{format_quantization(kind.quantization)}" if kind.quantization else text


def format_device(device: VirtualDevice) -> str:
    fields = {
        "type": quote(device.device_type) if device.device_type else "",
        "id": str(device.device_id) if device.device_id != UNCONSTRAINED.device_id else "",
        "target": quote(device.target) if device.target else "",
        "scope": quote(device.memory_scope) if device.memory_scope else "",
    }
    return "on(" + ", ".join(f"{name}={text}" for name, text in fields.items() if text) + ")"


class SyntaxParser:
    """The shared grammar over a tokenizer."""

    __slots__ = ("_nesting", "tokens")

    def __init__(self, tokens: Tokenizer) -> None:
        self.tokens = tokens
        self._nesting = 0

    def deeper(self) -> None:
        """One more open bracket; every call is paired with `shallower`."""
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self.tokens.error(f"the text is nested deeper than {NESTING_MAX} levels.")

    def shallower(self) -> None:
        self._nesting -= 1

    def items(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """`opening item, item, ... closing`; a comma before the end is allowed."""
        self.tokens.expect(opening)
        self.deeper()
        found: list[T] = []
        while not self.tokens.at(closing):
            found.append(item())
            if not self.tokens.accept(","):
                break
        self.tokens.expect(closing)
        self.shallower()
        return found

    def expected(self, what: str) -> ModelError:
        """The error that something else than `what` stands here."""
        token = self.tokens.peek
        shown = "the end of the text" if token.kind is TokenKind.END else repr(token.text[:40])
        return self.tokens.error(f"found {shown}, expected {what}.")

    def unique(self, name: str, known: Mapping[str, object], what: str, token: Token) -> str:
        """`name`, which must not be in `known` yet."""
        if name in known:
            raise self.tokens.error(f"{what} {name!r} is defined twice.", token)
        return name

    def word(self) -> str:
        """An identifier or a string."""
        if self.tokens.peek.kind is TokenKind.STRING:
            return self.tokens.string()
        return self.tokens.ident()

    def one_of(self, words: tuple[str, ...]) -> str:
        for candidate in words:
            if self.tokens.accept(candidate):
                return candidate
        raise self.expected(f"one of {', '.join(words)}")

    def attr(self) -> Attr:
        tokens = self.tokens
        match tokens.peek.kind:
            case TokenKind.STRING:
                return tokens.string()
            case TokenKind.INT:
                return tokens.int_()
            case TokenKind.FLOAT:
                return tokens.float_()
        if tokens.at("["):
            return tuple(self.items("[", "]", self.attr))
        for text, value in (("true", True), ("false", False)):
            if tokens.accept(text):
                return value
        raise self.expected("a number, a string, true, false or a list")

    def attrs(self) -> dict[str, Attr]:
        found: dict[str, Attr] = {}

        def item() -> None:
            token = self.tokens.peek
            name = self.unique(self.word(), found, "attribute", token)
            self.tokens.expect("=")
            found[name] = self.attr()

        self.items("{", "}", item)
        return found

    def maybe_attrs(self) -> dict[str, Attr]:
        """`attrs {...}` or nothing."""
        return self.attrs() if self.tokens.accept("attrs") else {}

    def span(self) -> Span:
        """`span(FILE, SUBGRAPH, OPERATOR[, TENSOR])` or nothing."""
        if not self.tokens.accept("span"):
            return Span("")
        self.tokens.expect("(")
        file = self.tokens.string()
        self.tokens.expect(",")
        subgraph = self.tokens.int_()
        self.tokens.expect(",")
        op_index = self.tokens.int_()
        tensor = self.tokens.string() if self.tokens.accept(",") else ""
        self.tokens.expect(")")
        return Span(file, subgraph, op_index, tensor)

    def dtype(self) -> DType:
        token = self.tokens.peek
        found = find_dtype(token.text) if token.kind is TokenKind.IDENT else None
        if found is None:
            raise self.expected("an element type such as i8 or f32")
        self.tokens.next()
        return found

    def shape(self) -> tuple[int, ...]:
        return tuple(self.items("[", "]", self.tokens.int_))

    def quantization(self) -> Quantization | None:
        """`quant(...)` or nothing."""
        token = self.tokens.peek
        if not self.tokens.accept("quant"):
            return None
        self.tokens.expect("(")
        scales = self._one_or_list(self.tokens.float_)
        self.tokens.expect(",")
        zeros = self._one_or_list(self.tokens.int_)
        axis = None
        if self.tokens.accept(","):
            self.tokens.expect("axis")
            self.tokens.expect("=")
            axis = self.tokens.int_()
        self.tokens.expect(")")
        if len(zeros) == 1:
            zeros *= len(scales)
        try:
            return Quantization(tuple(scales), tuple(zeros), axis)
        except ModelError as error:
            raise self.tokens.error(error.what, token) from None

    def _one_or_list(self, item: Callable[[], T]) -> list[T]:
        return self.items("[", "]", item) if self.tokens.at("[") else [item()]

    def tensor_type(self) -> TensorType:
        dtype = self.dtype()
        shape = self.shape()
        return TensorType(shape, dtype, self.quantization())

    def device(self) -> VirtualDevice:
        """`on(...)` or nothing."""
        if not self.tokens.accept("on"):
            return UNCONSTRAINED
        found: dict[str, str | int] = {}

        def item() -> None:
            name = self.one_of(("type", "id", "target", "scope"))
            self.tokens.expect("=")
            found[name] = self.tokens.int_() if name == "id" else self.tokens.string()

        self.items("(", ")", item)
        return VirtualDevice(
            str(found.get("type", "")),
            int(found.get("id", UNCONSTRAINED.device_id)),
            str(found.get("target", "")),
            str(found.get("scope", "")),
        )
