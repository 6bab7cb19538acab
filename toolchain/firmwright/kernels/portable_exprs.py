"""Semantics of simple instructions as C expressions: a few operators on words.

The printer of codegen writes all expressions of TIR, but only where helper functions
are. In micro-kernels an operator is shorter than the call of such a function.
"""

from collections.abc import Mapping, Sequence

from firmwright.base.dtypes import FLOAT32, INT32, UINT32
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import Immediate, Instr, RegisterPlace

_OPERATORS: Mapping[str, str] = {"add": "+", "sub": "-", "mul": "*", "and": "&"}
_TYPES = (FLOAT32, INT32, UINT32)
_MOST_OPERATORS = 4
"""Operators of an expression at most, conversions included."""


def is_written_out(instr: Instr) -> bool:
    """Return whether the C of an instruction is an expression of a few operators."""
    if len(instr.results) != 1 or instr.memory is not None:
        return False
    numbers: dict[str, int] = {}
    for operand in (*instr.operands, *instr.results):
        match operand.place:
            case Immediate(values):
                numbers[operand.name] = values[0]
            case RegisterPlace(_, dtype, 1) if dtype in _TYPES:
                continue
            case _:
                return False
    ((semantics,),) = instr.expressions(numbers)
    count = _operators(semantics)
    return count is not None and count <= _MOST_OPERATORS


def operator_text(instr: Instr, words: Sequence[str]) -> str:
    """Return the C expression of an instruction, whose operands are `words`."""
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for operand, word in zip(instr.operands, words, strict=True):
        if isinstance(operand.place, Immediate):
            numbers[operand.name] = int(word)
        else:
            names[operand.name] = word
    ((semantics,),) = instr.expressions(numbers)
    return _text(semantics, names)


def _operators(expr: tir.Expr) -> int | None:
    """Return the number of operators, or None if one has no place here."""
    match expr:
        case tir.Var() | tir.IntImm():
            return 0
        case tir.Cast(dtype, value):
            is_word = {dtype, value.dtype} <= {INT32, UINT32}
            inner = _operators(value) if is_word else None
            return None if inner is None else inner + 1
        case tir.Binary(op, a, b) if op in _OPERATORS:
            first, second = _operators(a), _operators(b)
            return None if first is None or second is None else first + second + 1
    return None


def _text(expr: tir.Expr, names: Mapping[str, str]) -> str:
    match expr:
        case tir.Var(name):
            return names[name]
        case tir.IntImm(value, dtype):
            return f"{value:#x}u" if dtype == UINT32 else str(value)
        case tir.Cast(dtype, value):
            text = _text(value, names)
            return f"({dtype.c_type})" + _enclosed(value, text)
        case tir.Binary(op, a, b):
            left, right = _text(a, names), _text(b, names)
            if not _binds(a, op):
                left = _enclosed(a, left)
            if not (op == "add" and isinstance(b, tir.Binary) and b.op == "mul"):
                right = _enclosed(b, right)
            return f"{left} {_OPERATORS[op]} {right}"
    raise InternalError("an expression is not one of a few operators")


def _enclosed(expr: tir.Expr, text: str) -> str:
    return f"({text})" if isinstance(expr, tir.Binary) else text


def _binds(left: tir.Expr, op: str) -> bool:
    """Return whether a left operand needs no parentheses."""
    if not isinstance(left, tir.Binary):
        return True
    return op in ("add", "sub") and left.op in ("add", "sub", "mul")
