"""Text syntax of both IR levels: names, attributes, types, spans and line breaking.

Each `format_X` function is the inverse of the `SyntaxParser` method `X`. A newline in a
formatted string permits a line break; in short lines `IRWriter.put` prints a space.
Quoted strings never contain newlines.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from firmwright.base.dtypes import INT32, DType, find_dtype
from firmwright.base.errors import InternalError, ModelError
from firmwright.base.indented_writer import IndentedWriter
from firmwright.base.quant import Quantization
from firmwright.base.tokenizer import Token, Tokenizer, TokenKind, format_float, quote
from firmwright.ir.attribute_kinds import FUNCTION_ATTRIBUTES, AttrKinds
from firmwright.ir.core import UNCONSTRAINED, Attr, Attrs, Span, VirtualDevice
from firmwright.ir.graph.nodes import TensorType

COLUMNS = 100
NESTING_MAX = 150
"""Limit of open brackets and operands, which protects against hostile input."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
_NOT_WORDS = frozenset({"inf", "nan", "true", "false"})  # these words denote values
T = TypeVar("T")


class IRWriter(IndentedWriter):
    """A text writer that breaks long lines at the permitted places."""

    __slots__ = ()

    def put(self, text: str) -> None:
        """Write one line; beyond column 100 it is broken and indented by four."""
        room = COLUMNS - len(self._step) * self._indent
        current, *pieces = text.split("\n")
        for piece in pieces:
            if current and len(current) + 1 + len(piece) > room:
                self.line(current)
                current = f"    {piece}"
            else:
                current = f"{current} {piece}" if current else piece
        self.line(current)


def format_word(text: str) -> str:
    """Return `text` bare if it is an identifier, else quoted."""
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
            raise InternalError(
                f"an attribute has the value {value!r}, which has no text form"
            )


def format_attrs(attrs: Attrs) -> str:
    pairs = []
    for name, value in attrs.items():
        pairs.append(f"{format_word(name)}={format_attr(value)}")
    return "{" + ",\n".join(pairs) + "}"


def format_shape(dtype: DType, shape: tuple[int, ...]) -> str:
    return f"{dtype.short}[{','.join(map(str, shape))}]"


def format_span(span: Span) -> str:
    tensor = f", {quote(span.tensor)}" if span.tensor else ""
    return f"span({quote(span.file)}, {span.subgraph}, {span.op_index}{tensor})"


def format_quantization(quantization: Quantization) -> str:
    """Format as `quant(SCALES, ZEROS)`; equal zero points are one number.

    Scales and zero points of channels are lists.
    """
    scales, zeros = quantization.scales, quantization.zero_points
    if quantization.axis is None:
        return f"quant({format_float(scales[0])}, {zeros[0]})"
    same = len(set(zeros)) == 1
    zero = str(zeros[0]) if same else "[" + ",\n".join(map(str, zeros)) + "]"
    scale = ",\n".join(map(format_float, scales))
    return f"quant([{scale}],\n{zero}, axis={quantization.axis})"


def format_type(kind: TensorType) -> str:
    text = format_shape(kind.dtype, kind.shape)
    if not kind.quantization:
        return text
    return f"{text}\n{format_quantization(kind.quantization)}"


def format_device(device: VirtualDevice) -> str:
    has_id = device.device_id != UNCONSTRAINED.device_id
    fields = {
        "type": quote(device.device_type) if device.device_type else "",
        "id": str(device.device_id) if has_id else "",
        "target": quote(device.target) if device.target else "",
        "scope": quote(device.memory_scope) if device.memory_scope else "",
    }
    shown = [f"{name}={text}" for name, text in fields.items() if text]
    return f"on({', '.join(shown)})"


class SyntaxParser:
    """The shared grammar on top of a tokenizer."""

    __slots__ = ("_nesting", "tokens")

    def __init__(self, tokens: Tokenizer) -> None:
        self.tokens = tokens
        self._nesting = 0

    def deeper(self) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self.tokens.error(
                f"the text is nested deeper than {NESTING_MAX} levels."
            )

    def shallower(self) -> None:
        self._nesting -= 1

    def items(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """Parse `opening item, item, ... closing`; a trailing comma is allowed."""
        self.tokens.expect(opening)
        self.deeper()
        parsed: list[T] = []
        while not self.tokens.at(closing):
            parsed.append(item())
            if not self.tokens.accept(","):
                break
        self.tokens.expect(closing)
        self.shallower()
        return parsed

    def in_parentheses(self, read: Callable[[], T]) -> T:
        self.deeper()
        self.tokens.expect("(")
        value = read()
        self.tokens.expect(")")
        self.shallower()
        return value

    def expected(self, what: str) -> ModelError:
        token, found = self.tokens.peek, "the end of the text"
        if token.kind is not TokenKind.END:
            found = repr(token.text[:40])
        return self.tokens.error(f"found {found}, expected {what}.")

    def unique(
        self, name: str, defined: Mapping[str, object], what: str, token: Token
    ) -> str:
        """Return `name`, or raise an error if it is already defined."""
        if name in defined:
            raise self.tokens.error(f"{what} {name!r} is defined twice.", token)
        return name

    def word(self) -> str:
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

    def attrs(self, kinds: AttrKinds) -> dict[str, Attr]:
        """Parse `{NAME=VALUE, ...}`; a value must have the kind in `kinds`, if any."""
        attrs: dict[str, Attr] = {}

        def item() -> None:
            token = self.tokens.peek
            name = self.unique(self.word(), attrs, "attribute", token)
            self.tokens.expect("=")
            token = self.tokens.peek
            attrs[name] = self.attr()
            kind = kinds.get(name)
            if kind is not None and not kind.includes(attrs[name]):
                found = format_attr(attrs[name]).replace("\n", " ")[:40]
                what = f"the attribute {name} is {found}, expected {kind.description}."
                raise self.tokens.error(what, token)

        self.items("{", "}", item)
        return attrs

    def function_attrs(self) -> dict[str, Attr]:
        return self.attrs(FUNCTION_ATTRIBUTES) if self.tokens.accept("attrs") else {}

    def span(self) -> Span:
        """Parse an optional `span(FILE, SUBGRAPH, OPERATOR[, TENSOR])`."""
        if not self.tokens.accept("span"):
            return Span("")
        return self.in_parentheses(self._span)

    def _span(self) -> Span:
        file = self.tokens.string()
        self.tokens.expect(",")
        subgraph = self.tokens.int_()
        self.tokens.expect(",")
        op_index = self.tokens.int_()
        tensor = self.tokens.string() if self.tokens.accept(",") else ""
        return Span(file, subgraph, op_index, tensor)

    def dtype(self) -> DType:
        token = self.tokens.peek
        dtype = find_dtype(token.text) if token.kind is TokenKind.IDENT else None
        if dtype is None:
            raise self.expected("an element type such as i8 or f32")
        self.tokens.next()
        return dtype

    def shape(self) -> tuple[int, ...]:
        return tuple(self.items("[", "]", self.tokens.int_))

    def quantization(self) -> Quantization | None:
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
        if not all(INT32.min <= zero <= INT32.max for zero in zeros):
            raise self.tokens.error("a zero point exceeds 32 bits.", token)
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
        if not self.tokens.accept("on"):
            return UNCONSTRAINED
        fields: dict[str, str | int] = {}

        def item() -> None:
            name = self.one_of(("type", "id", "target", "scope"))
            self.tokens.expect("=")
            fields[name] = self.tokens.int_() if name == "id" else self.tokens.string()

        self.items("(", ")", item)
        return VirtualDevice(
            str(fields.get("type", "")),
            int(fields.get("id", UNCONSTRAINED.device_id)),
            str(fields.get("target", "")),
            str(fields.get("scope", "")),
        )
