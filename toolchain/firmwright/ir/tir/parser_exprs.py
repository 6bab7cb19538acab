"""Parser of TIR expressions; `tir/printer.py` describes the language and its dtypes."""

from typing import NamedTuple, cast

from firmwright.base.dtypes import BOOL, FLOAT32, HANDLE, INT32, INT64, DType
from firmwright.base.tokenizer import Token, Tokenizer, TokenKind
from firmwright.ir import tir
from firmwright.ir.syntax import SyntaxParser
from firmwright.ir.tir.printer import KEYWORDS, LOGICAL, OPERATORS

EXPR_DEPTH_MAX = 200
_INFIX: dict[str, tuple[tir.BinaryOp, int]] = {
    symbol: (cast(tir.BinaryOp, op), level)
    for table in (OPERATORS, LOGICAL)
    for op, (symbol, level) in table.items()
}
_COMPARING = 3  # precedence of the operators that do not chain
_UNRESOLVED = DType("literal", "?", 0, "")  # dtype of an unresolved literal


class _ParsedExpr(NamedTuple):
    expr: tir.Expr
    dtype: DType | None
    depth: int = 1


class ExprParser(SyntaxParser):
    """Parser of expressions over the buffers and variables declared so far."""

    __slots__ = ("_buffers", "_index", "_vars")

    def __init__(self, tokens: Tokenizer) -> None:
        super().__init__(tokens)
        self._index = INT64
        self._buffers: dict[str, tir.Buffer] = {}
        self._vars: dict[str, tir.Var] = {}

    def _new_name(self) -> str:
        if self.tokens.peek.kind is TokenKind.LOCAL:
            return self.tokens.local()
        return self.tokens.ident()

    def _expr(self, want: DType | None) -> tir.Expr:
        return resolve_literals(self._binary(0), want)

    def _arg(self) -> tir.Expr:
        return self._expr(None)

    def _binary(self, least: int) -> _ParsedExpr:
        self.deeper()
        left = self._unary()
        while True:
            token = self.tokens.peek
            operator = _INFIX.get(token.text) if token.kind is TokenKind.PUNCT else None
            if operator is None or operator[1] < least:
                self.shallower()
                return left
            op, level = operator
            self.tokens.next()
            right = self._binary(level + 1)
            left = self._joined(op, left, right, token)
            if level == _COMPARING:
                following = _INFIX.get(self.tokens.peek.text)
                if following is not None and following[1] == _COMPARING:
                    what = "comparisons do not chain: use parentheses."
                    raise self.tokens.error(what)

    def _joined(
        self, op: tir.BinaryOp, left: _ParsedExpr, right: _ParsedExpr, token: Token
    ) -> _ParsedExpr:
        depth = self._checked_depth(token, left, right)
        dtype = left.dtype or right.dtype
        compares = op in tir.COMPARISONS
        a, b = left.expr, right.expr
        if dtype is not None or compares:
            a, b = resolve_literals(left, dtype), resolve_literals(right, dtype)
        return _ParsedExpr(tir.Binary(op, a, b), BOOL if compares else dtype, depth)

    def _checked_depth(self, token: Token, *parts: _ParsedExpr) -> int:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > EXPR_DEPTH_MAX:
            what = f"an expression is deeper than {EXPR_DEPTH_MAX} operators."
            raise self.tokens.error(what, token)
        return depth

    def _unary(self) -> _ParsedExpr:
        token = self.tokens.peek
        if not self.tokens.accept("!"):
            return self._primary()
        self.deeper()
        inner = self._unary()
        self.shallower()
        depth = self._checked_depth(token, inner)
        return _ParsedExpr(tir.Not(resolve_literals(inner, BOOL)), BOOL, depth)

    def _primary(self) -> _ParsedExpr:
        token = self.tokens.peek
        match token.kind:
            case TokenKind.INT | TokenKind.FLOAT:
                return self._literal()
            case TokenKind.PUNCT if token.text == "(":
                return self.in_parentheses(lambda: self._binary(0))
            case TokenKind.IDENT | TokenKind.LOCAL | TokenKind.GLOBAL:
                self.tokens.next()
                return self._named(token)
            case _:
                raise self.expected("an expression")

    def _literal(self) -> _ParsedExpr:
        token = self.tokens.next()
        dtype = self.dtype() if self.tokens.accept(":") else _UNRESOLVED
        if token.kind is TokenKind.INT:
            return _ParsedExpr(tir.IntImm(int(token.value), dtype), None)
        return _ParsedExpr(tir.FloatImm(float(token.value), dtype), None)

    def _named(self, token: Token) -> _ParsedExpr:
        if token.kind is TokenKind.IDENT and token.text in KEYWORDS:
            return self._builtin(token)
        if token.kind is TokenKind.GLOBAL or (
            token.kind is TokenKind.IDENT and self.tokens.at("(")
        ):
            return self._value_call(token)
        if self.tokens.at("["):
            reads: list[_ParsedExpr] = []
            buffer = self._known_buffer(token)
            self.items("[", "]", lambda: reads.append(self._binary(0)))
            indices = tuple(resolve_literals(read, self._index) for read in reads)
            load = tir.BufferLoad(buffer, indices)
            depth = self._checked_depth(token, *reads)
            return _ParsedExpr(load, buffer.dtype, depth)
        var = self._vars.get(str(token.value))
        if var is None:
            what = f"no variable {str(token.value)!r} is declared here."
            raise self.tokens.error(what, token)
        return _ParsedExpr(var, var.dtype)

    def _builtin(self, token: Token) -> _ParsedExpr:
        match token.text:
            case "true" | "false":
                return _ParsedExpr(tir.IntImm(int(token.text == "true"), BOOL), BOOL)
            case "min" | "max":
                a, b = self._operands(2, token)
                return self._joined(cast(tir.BinaryOp, token.text), a, b, token)
            case "cast":
                return self._cast(token)
            case "select":
                return self._select(token)
            case "ptr":
                return _ParsedExpr(self._pointer(), HANDLE)
            case _:
                what = f"found {token.text!r}, expected an expression."
                raise self.tokens.error(what, token)

    def _operands(self, count: int, token: Token) -> list[_ParsedExpr]:
        reads = self.items("(", ")", lambda: self._binary(0))
        if len(reads) != count:
            what = f"{token.text} has {len(reads)} operands, expected {count}."
            raise self.tokens.error(what, token)
        return reads

    def _cast(self, token: Token) -> _ParsedExpr:
        self.tokens.expect("(")
        self.deeper()
        dtype = self.dtype()
        self.tokens.expect(",")
        inner = self._binary(0)
        self.tokens.expect(")")
        self.shallower()
        depth = self._checked_depth(token, inner)
        return _ParsedExpr(tir.Cast(dtype, resolve_literals(inner, None)), dtype, depth)

    def _select(self, token: Token) -> _ParsedExpr:
        cond, a, b = self._operands(3, token)
        depth = self._checked_depth(token, cond, a, b)
        dtype = a.dtype or b.dtype
        left, right = a.expr, b.expr
        if dtype is not None:
            left, right = resolve_literals(a, dtype), resolve_literals(b, dtype)
        test = resolve_literals(cond, BOOL)
        return _ParsedExpr(tir.Select(test, left, right), dtype, depth)

    def _value_call(self, token: Token) -> _ParsedExpr:
        reads = self.items("(", ")", lambda: self._binary(0))
        args = tuple(resolve_literals(read, None) for read in reads)
        if not self.tokens.accept(":"):
            raise self.expected(f"the result dtype of {token.text}, as in `f(x):i32`")
        dtype = self.dtype()
        call = tir.IntrinsicCall(str(token.value), args, dtype)
        return _ParsedExpr(call, dtype, self._checked_depth(token, *reads))

    def _pointer(self) -> tir.AccessPtr:
        tokens = self.tokens
        tokens.expect("(")
        self.deeper()
        token = tokens.peek
        self._new_name()
        buffer = self._known_buffer(token)
        tokens.expect(",")
        offset = self._expr(self._index)
        tokens.expect(",")
        extent = tokens.int_()
        tokens.expect(",")
        access = cast(tir.AccessMode, self.one_of(("rw", "r", "w")))
        stride = tokens.int_() if tokens.accept(",") else 1
        tokens.expect(")")
        self.shallower()
        return tir.AccessPtr(buffer, offset, extent, access, stride)

    def _known_buffer(self, token: Token) -> tir.Buffer:
        buffer = self._buffers.get(str(token.value))
        if buffer is None:
            what = f"no buffer {str(token.value)!r} is declared here."
            raise self.tokens.error(what, token)
        return buffer


def resolve_literals(read: _ParsedExpr, want: DType | None) -> tir.Expr:
    """Return the expression; open literals get dtype `want` (if None, i32 or f32)."""
    if read.dtype is not None:
        return read.expr
    return _set_literal_dtypes(read.expr, want)


def _set_literal_dtypes(expr: tir.Expr, want: DType | None) -> tir.Expr:
    match expr:
        case tir.IntImm(value, dtype) if dtype is _UNRESOLVED:
            return tir.IntImm(value, want or INT32)
        case tir.FloatImm(value, dtype) if dtype is _UNRESOLVED:
            return tir.FloatImm(value, want or FLOAT32)
        case tir.Binary(op, a, b):
            left, right = _set_literal_dtypes(a, want), _set_literal_dtypes(b, want)
            return tir.Binary(op, left, right)
        case tir.Select(cond, a, b):
            left, right = _set_literal_dtypes(a, want), _set_literal_dtypes(b, want)
            return tir.Select(cond, left, right)
        case _:
            return expr
