"""Expression compiler of the interpreter; `nodes.py` defines the semantics.

Each expression becomes a function from frame to value (see `interpreter_runtime.py`).
Masked-off lanes may compute arbitrary values but never fail; an error in an active lane
is an InternalError.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import BOOL, DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.tir import interpreter_runtime as runtime
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.expr_evaluation import (
    ARRAY_FUNCTIONS,
    FLOAT_EXTREMES,
    SCALAR_FUNCTIONS,
    BinaryFunction,
)
from firmwright.ir.tir.interpreter_runtime import (
    Array,
    CallFrame,
    Eval,
    Mask,
    Pointer,
    Value,
)
from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicTable


@dataclass(frozen=True, slots=True)
class ExprCompiler:
    """Compiler of the expressions of one function."""

    func: str
    span: Span
    intrinsics: IntrinsicTable
    check_overflow: bool

    def error(self, what: str) -> InternalError:
        place = f"@{self.func}"
        if self.span.file:
            place += f" ({self.span})"
        return InternalError(what, where=place)

    def compile(self, node: tir.Expr, bounds: Bounds) -> Eval:
        match node:
            case tir.IntImm(value, dtype):
                constant: Value = bool(value) if dtype == BOOL else value
                return lambda frame: constant
            case tir.FloatImm(value, dtype):
                number = dtype.np.type(value)
                return lambda frame: number
            case tir.Var(name, _):
                return lambda frame: frame.variables[name]
            case tir.Binary():
                return self._binary(node, bounds)
            case tir.Not(a):
                inner = self.compile(a, bounds)
                return lambda frame: _not(inner(frame))
            case tir.Cast(dtype, value):
                return self._cast(dtype, value, bounds)
            case tir.Select(cond, a, b):
                return self._select(cond, a, b, bounds)
            case tir.BufferLoad(buffer, indices):
                return self._load(buffer, indices, bounds)
            case tir.AccessPtr():
                return self.pointer(node, bounds)
            case tir.IntrinsicCall(name, args, dtype):
                return self._call(name, args, dtype, bounds)

    def _binary(self, node: tir.Binary, bounds: Bounds) -> Eval:
        a, b = self.compile(node.a, bounds), self.compile(node.b, bounds)
        dtype, op = node.a.dtype, node.op
        if op in ("min", "max"):
            functions = FLOAT_EXTREMES if dtype.is_float else ARRAY_FUNCTIONS
            return _extreme(SCALAR_FUNCTIONS[op], functions[op], a, b)
        if dtype.is_float and op == "div":
            return lambda frame: a(frame) / b(frame)
        if dtype.is_float or op in tir.COMPARISONS or op in ("and", "or", "xor"):
            return _evaluate_binary(op, a, b)
        if op in ("div", "mod"):
            return self._division(node, a, b)
        if op in ("shl", "shr"):
            return self._shift(node, a, b)
        limits = bounds.interval_of(node)
        if limits is not None and dtype.min < limits[0] and limits[1] < dtype.max:
            return _evaluate_binary(op, a, b)
        return self._wrapping(node, a, b)

    def _wrapping(self, node: tir.Binary, a: Eval, b: Eval) -> Eval:
        dtype, op = node.a.dtype, SCALAR_FUNCTIONS[node.op]
        low, high, kind = dtype.min, dtype.max, dtype.np
        checked = self.check_overflow and dtype.signed

        def run(frame: CallFrame) -> Value:
            x, y = a(frame), b(frame)
            if not (isinstance(x, np.ndarray) or isinstance(y, np.ndarray)):
                result = op(x, y)
                if low <= result <= high:
                    return result
                if checked:
                    raise self._overflow(node, result)
                return wrap_to_dtype(result, dtype)
            if dtype.bits == 64:
                return self._wide(node, x, y, frame.mask) if checked else op(x, y)
            exact = op(np.asarray(x, np.int64), y)
            if checked and (exact.min(initial=0) < low or exact.max(initial=0) > high):
                bad = (exact < low) | (exact > high)
                if runtime.is_any_active(bad, frame.mask):
                    raise self._overflow(node, exact[bad].flat[0])
            return exact.astype(kind)

        return run

    def _wide(self, node: tir.Binary, x: Value, y: Value, mask: Mask) -> Value:
        """Check 64-bit lanes for overflow by comparison with the result in float."""
        op = SCALAR_FUNCTIONS[node.op]
        result = op(x, y)
        estimate = op(np.asarray(x, np.float64), np.asarray(y, np.float64))
        # A wrapped result is off by 2^64; the float is rounded by much less.
        bad = np.abs(result - estimate) > 2.0**62
        if runtime.is_any_active(bad, mask):
            raise self._overflow(node, "a value")
        return result

    def _overflow(self, node: tir.Binary, value: object) -> InternalError:
        return self.error(f"{node.op} overflows {node.dtype.name}: {value} ({node})")

    def _division(self, node: tir.Binary, a: Eval, b: Eval) -> Eval:
        divide = node.op == "div"
        dtype = node.dtype

        def run(frame: CallFrame) -> Value:
            x, y = a(frame), b(frame)
            zero = y == 0
            if runtime.is_any_active(zero, frame.mask):
                raise self.error(f"{node.op} by zero")
            if not (isinstance(x, np.ndarray) or isinstance(y, np.ndarray)):
                quotient = abs(x) // abs(y) if y else 0
                quotient = quotient if (x < 0) == (y < 0) else -quotient
                return wrap_to_dtype(quotient if divide else x - quotient * y, dtype)
            safe = np.where(zero, dtype.np.type(1), y).astype(dtype.np, copy=False)
            rest = np.fmod(np.asarray(x, dtype.np), safe)
            whole: Array = (x - rest) // safe
            return whole if divide else rest

        return run

    def _shift(self, node: tir.Binary, a: Eval, b: Eval) -> Eval:
        left, dtype = node.op == "shl", node.dtype
        check = left and self.check_overflow and dtype.signed

        def run(frame: CallFrame) -> Value:
            x, y = a(frame), b(frame)
            if runtime.is_any_active((y < 0) | (y >= dtype.bits), frame.mask):
                raise self.error(f"{node.op} by {y} of {dtype.name}")
            if not (isinstance(x, np.ndarray) or isinstance(y, np.ndarray)):
                result = wrap_to_dtype(x << y if left else x >> y, dtype)
                if check and result >> y != x:
                    raise self._overflow(node, x << y)
                return result
            amount = np.clip(np.asarray(y, dtype.np), 0, dtype.bits - 1)
            values = np.asarray(x, dtype.np)
            if not left:
                return values >> amount
            shifted = values << amount
            if check and runtime.is_any_active(shifted >> amount != values, frame.mask):
                raise self._overflow(node, "a value")
            return shifted

        return run

    def _select(self, cond: tir.Expr, a: tir.Expr, b: tir.Expr, bounds: Bounds) -> Eval:
        test = self.compile(cond, bounds)
        left, right = self.compile(a, bounds), self.compile(b, bounds)
        kind = a.dtype.np

        def run(frame: CallFrame) -> Value:
            chosen, x, y = test(frame), left(frame), right(frame)
            if not isinstance(chosen, np.ndarray):
                return x if chosen else y
            return np.asarray(np.where(chosen, x, y), kind)

        return run

    def _cast(self, dtype: DType, value: tir.Expr, bounds: Bounds) -> Eval:
        inner, source = self.compile(value, bounds), value.dtype
        kind = dtype.np
        if dtype.is_int and source.is_float:
            return self._truncation(dtype, inner)

        def run(frame: CallFrame) -> Value:
            x = inner(frame)
            if isinstance(x, np.ndarray):
                return x.astype(kind)
            if dtype.is_float:
                # Python would round integers of 64 bits twice.
                return np.asarray(x, source.np).astype(kind)[()]
            return bool(x) if dtype == BOOL else wrap_to_dtype(int(x), dtype)

        return run

    def _truncation(self, dtype: DType, inner: Eval) -> Eval:
        low, end = float(dtype.min), float(dtype.max + 1)

        def run(frame: CallFrame) -> Value:
            x = np.trunc(np.asarray(inner(frame), np.float64))
            # Written so that a NaN is out of range; both limits are exact in f64.
            bad = ~((x >= low) & (x < end))
            if runtime.is_any_active(bad if bad.ndim else bool(bad), frame.mask):
                raise self.error(f"a float does not fit {dtype.name}")
            fitting = np.where(bad, 0.0, x)
            return fitting.astype(dtype.np) if fitting.ndim else int(fitting)

        return run

    def position(
        self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...], bounds: Bounds
    ) -> Eval:
        if len(indices) != len(buffer.shape):
            raise self.error(
                f"{buffer.name} has {len(buffer.shape)} dimensions: {indices}"
            )
        terms: list[tuple[Eval, int]] = []
        constant = 0
        steps = zip(indices, buffer.shape, buffer.element_strides, strict=True)
        for axis, (index, size, stride) in enumerate(steps):
            if isinstance(index, tir.IntImm) and 0 <= index.value < size:
                constant += index.value * stride
                continue
            limits = bounds.interval_of(index)
            run = self.compile(index, bounds)
            if limits is None or limits[0] < 0 or limits[1] >= size:
                run = self._checked(run, buffer, axis, size)
            terms.append((run, stride))
        return _weighted_sum(terms, constant)

    def _checked(self, index: Eval, buffer: tir.Buffer, axis: int, size: int) -> Eval:
        def run(frame: CallFrame) -> Value:
            value = index(frame)
            bad = (value < 0) | (value >= size)
            if not isinstance(bad, np.ndarray):
                if bad and runtime.is_any_active(bad, frame.mask):
                    raise self._outside(buffer, axis, value)
                return 0 if bad else value
            if not bad.any():
                return value
            if runtime.is_any_active(bad, frame.mask):
                reached = bad if frame.mask is None else bad & frame.mask
                indices = np.broadcast_to(value, reached.shape)
                raise self._outside(buffer, axis, indices[reached][0])
            return np.where(bad, 0, value)

        return run

    def _outside(self, buffer: tir.Buffer, axis: int, value: object) -> InternalError:
        return self.error(
            f"index {value} of {buffer.name} is outside of dimension {axis}, "
            f"which has {buffer.shape[axis]} elements."
        )

    def register(
        self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...], bounds: Bounds
    ) -> Eval:
        """Compile the register number, which must be equal in all lanes."""
        where = self.position(buffer, indices, bounds)

        def run(frame: CallFrame) -> Value:
            number = where(frame)
            if isinstance(number, np.ndarray):
                what = f"the index of register {buffer.name} differs between lanes"
                raise self.error(what)
            return number

        return run

    def _load(
        self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...], bounds: Bounds
    ) -> Eval:
        name = buffer.name
        if buffer.scope != "reg":
            where = self.position(buffer, indices, bounds)
            return lambda frame: frame.views[name].gather(where(frame))
        number = self.register(buffer, indices, bounds)

        def run(frame: CallFrame) -> Value:
            value = frame.registers[name][number(frame)]
            if value is None:
                raise self.error(f"the register {name} is read before it is written.")
            return value

        return run

    def pointer(self, node: tir.AccessPtr, bounds: Bounds) -> Eval:
        buffer, extent = node.buffer, node.extent
        name, size = buffer.name, buffer.dtype.size_bytes
        room = buffer.span_elements - extent
        offset = self.compile(node.offset, bounds)

        def run(frame: CallFrame) -> Value:
            start = offset(frame)
            bad = (start < 0) | (start > room)
            if runtime.is_any_active(bad, frame.mask):
                raise self.error(
                    f"{extent} elements from {start} are not inside {name}, "
                    f"which has {buffer.span_elements}."
                )
            if isinstance(bad, np.ndarray):
                start = np.where(bad, 0, start)
            view = frame.views[name]
            writable = view.writable and "w" in node.access
            if "w" in node.access and not writable:
                raise self.error(f"{name} is read-only and a pointer would write it")
            base = view.base_bytes + start * size
            return Pointer(view.storage, base, extent * size, writable, view.shadow)

        return run

    def intrinsic(self, name: str, args: tuple[tir.Expr, ...]) -> Intrinsic:
        entry = self.intrinsics.get(name)
        if entry is None:
            raise self.error(f"the intrinsic {name} is not in the table")
        count = len(entry.operands)
        if count != len(args):
            raise self.error(f"{name} takes {count} operands, not {len(args)}")
        return entry

    def _call(
        self, name: str, args: tuple[tir.Expr, ...], dtype: DType, bounds: Bounds
    ) -> Eval:
        intrinsic = self.intrinsic(name, args)
        operands: list[Eval] = []
        for operand, arg in zip(intrinsic.operands, args, strict=True):
            value = self.compile(arg, bounds)
            operands.append(self.operand(operand.kind, operand.dtype, value))

        def run(frame: CallFrame) -> Value:
            result = intrinsic.meaning(*[operand(frame) for operand in operands])
            return self.result(np.asarray(result), dtype, frame, name)

        return run

    def operand(self, kind: str, dtype: DType, value: Eval) -> Eval:
        """Convert an operand to the argument of the numpy meaning.

        Immediates become ints; pointers become arrays whose first axis is the elements.
        """
        if kind == "imm":
            return value

        def load(frame: CallFrame) -> Value:
            view, indices = runtime.elements_at(value(frame), dtype, len(frame.shape))
            return np.asarray(view.gather(indices))

        def broadcast(frame: CallFrame) -> Value:
            x = value(frame)
            return x if isinstance(x, np.ndarray) else np.asarray([x], dtype.np)

        return load if kind == "ptr" else broadcast

    def result(self, value: Array, dtype: DType, frame: CallFrame, name: str) -> Value:
        """Convert a result to `dtype`; a value equal in all lanes becomes a scalar."""
        if value.dtype != dtype.np:
            narrow = value.astype(dtype.np)
            if dtype.is_int:
                changed = np.atleast_1d(narrow != value)
                if runtime.is_any_active(changed, frame.mask):
                    raise self.error(f"the result of {name} does not fit {dtype.name}")
            value = narrow
        if value.size == 1:
            only = value.reshape(-1)[0]
            return only if dtype.is_float else only.item()
        return value


def wrap_to_dtype(value: int, dtype: DType) -> int:
    low = int(value) & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.signed and low > dtype.max else low


def _not(value: Value) -> Value:
    return ~value if isinstance(value, np.ndarray) else not value


def _evaluate_binary(op: str, a: Eval, b: Eval) -> Eval:
    function = SCALAR_FUNCTIONS[op]
    return lambda frame: function(a(frame), b(frame))


def _extreme(scalar: BinaryFunction, lanes: BinaryFunction, a: Eval, b: Eval) -> Eval:
    def run(frame: CallFrame) -> Value:
        x, y = a(frame), b(frame)
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            return lanes(x, y)
        return scalar(x, y)

    return run


def _weighted_sum(terms: list[tuple[Eval, int]], constant: int) -> Eval:
    if not terms:
        return lambda frame: constant
    if len(terms) == 1 and terms[0][1] == 1 and constant == 0:
        return terms[0][0]

    def run(frame: CallFrame) -> Value:
        total: Value = constant
        for term, stride in terms:
            total = term(frame) * stride + total
        return total

    return run
