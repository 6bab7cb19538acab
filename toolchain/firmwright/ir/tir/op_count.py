"""Operation counts of a PrimFunc by kind: loads, multiply-adds, loops and so on.

Conditions and loops are evaluated on a fixed sample of the iteration space; a
data-dependent condition is true half of the time. Common compiler optimizations are
modeled: hoisting, common subexpressions, free induction variables and register moves.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType

import numpy as np

from firmwright.base.dtypes import FLOAT32, FLOAT64, INT16
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.branch_shares import (
    SAMPLE_COUNT,
    Samples,
    condition_fraction,
    has_call,
    sample_range,
)
from firmwright.ir.tir.compiled_patterns import (
    clamp_limits,
    conjuncts,
    is_range_check,
    is_saturation,
    iterations_together,
    operand_forms,
    stays_loop,
)
from firmwright.ir.tir.expr_evaluation import LaneValue, evaluate_lanes
from firmwright.ir.tir.intrinsic import CyclesOnCore, IntrinsicTable
from firmwright.ir.tir.traversal import (
    Node,
    child_statements,
    children,
    statements,
    walk,
)

_WALK_PER_LOAD = 3
"""Instructions of a walk for each word that it reads."""
_UNKNOWN_TRIPS = 8
_ARITHMETIC = {
    **dict.fromkeys(("add", "sub", "and", "or", "xor"), "alu"),
    **dict.fromkeys(("shl", "shr"), "shift"),
    "mul": "multiply",
    **dict.fromkeys(("div", "mod"), "divide"),
    **dict.fromkeys(("min", "max"), "clamp"),
}
_PREFIXES = {FLOAT32: "float_", FLOAT64: "double_"}
_IMMEDIATES = (tir.IntImm, tir.FloatImm)
NO_ARGUMENTS: Mapping[str, int] = MappingProxyType({})
REGISTERS = 11
"""Number of values that a loop can keep in the registers of a core with sixteen."""
SHORT_LOOP_MAX = 2
"""Loops with at most this many iterations may be unrolled by the compiler."""
_ON_INDICES = dict.fromkeys(("alu", "shift", "shift_by", "multiply"), "index")


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Operations by kind: executed in one call (`done`) and in the code (`written`)."""

    done: Mapping[str, float]
    written: Mapping[str, float]


def count_operations(
    func: tir.PrimFunc,
    intrinsics: IntrinsicTable,
    priced: Mapping[str, float] | None = None,
    registers: int = REGISTERS,
    arguments: Mapping[str, int] = NO_ARGUMENTS,
    core: str = "",
) -> OperationCounts:
    """Count the operations of `func`, without callees.

    `arguments` gives the values of scalar parameters. The intrinsics in `priced` count
    under their own name, with constant operands as NAME.fixed or NAME.zero. Loops that
    keep more values than `registers` spill the rest. Given a core, the instructions and
    the cycles of intrinsics that model these are kinds of their own.
    """
    counter = _OperationCounter(intrinsics, priced or {}, registers, arguments, core)
    counter.charge("call", 1.0)
    counter.count_stmt(func.body)
    return OperationCounts(counter.done, counter.written)


@dataclass(slots=True)
class _OpenLoop:
    runs: float
    copies: float
    seen: set[object] = field(default_factory=set)


@dataclass
class _OperationCounter:
    """One traversal of a body; `weight` is the execution count of each sample."""

    intrinsics: IntrinsicTable
    priced: Mapping[str, float]
    registers: int
    arguments: Mapping[str, int]
    core: str
    runs = copies = 1.0

    def __post_init__(self) -> None:
        self.done: defaultdict[str, float] = defaultdict(float)
        self.written: defaultdict[str, float] = defaultdict(float)
        self.weight: Samples = np.ones(SAMPLE_COUNT)
        self.levels = [_OpenLoop(1.0, 1.0)]
        self.visited: set[int] = set()
        self.is_data_by_id: dict[int, bool] = {}  # within one statement, as `visited`
        self.level_by_id: dict[int, int] = {}  # likewise
        self.values: dict[str, LaneValue] = dict(self.arguments)
        self.depth: dict[str, int] = {}
        self.data: set[str] = set()  # variables computed from memory

    def charge(self, kind: str, count: float) -> None:
        self.done[kind] += count * self.runs
        self.written[kind] += count * self.copies

    @contextmanager
    def scale(self, factor: Samples | float, copies: float = 1.0) -> Iterator[None]:
        before = self.weight, self.runs, self.copies
        self.weight = self.weight * factor
        self.runs = float(self.weight.mean())
        self.copies *= copies
        yield
        self.weight, self.runs, self.copies = before

    def count_stmt(self, node: tir.Stmt | None) -> None:
        self.visited, self.is_data_by_id, self.level_by_id = set(), {}, {}
        match node:
            case tir.For():
                self.count_loop(node)
            case tir.BufferStore():
                self.count_store(node)
            case tir.Let(var=var, value=value, body=body):
                self.count_expr(value)
                self.values[var.name] = evaluate_lanes(value, self.values)
                self.depth[var.name] = self.loop_level(value)
                if self.is_data(value):
                    self.data.add(var.name)
                self.count_stmt(body)
            case tir.If(cond=cond, then=then, orelse=orelse):
                self.count_condition(cond)
                share = condition_fraction(cond, self.values)
                then_runs = float((self.weight * share).mean())
                self.done["taken"] += min(then_runs, self.runs - then_runs)
                with self.scale(share):
                    self.count_stmt(then)
                with self.scale(1.0 - share):
                    self.count_stmt(orelse)
            case tir.While(cond=cond, body=body):
                with self.scale(_UNKNOWN_TRIPS):
                    self.count_expr(cond)
                    self.charge("loop", 1)
                    self.count_stmt(body)
            case tir.Seq() | tir.Allocate() | tir.AllocateConst():
                for item in child_statements(node):
                    self.count_stmt(item)
            case tir.DeclBuffer(buffer=buffer, source=source, body=body):
                self.count_view(buffer, source)
                self.count_stmt(body)
            case tir.Evaluate(call=call):
                self.count_expr(call)
                self.charge_asm_block(call)
            case tir.PrimFuncCall(args=args):
                self.charge("alu", len(args) + 1)

    def count_condition(self, cond: tir.Expr) -> None:
        """Charge a branch, and comparisons not known or made before in this loop."""
        seen = self.levels[-1].seen
        tests = [test for test in conjuncts(cond) if not self.always_true(test)]
        self.charge("branch", any(("test", test) not in seen for test in tests))
        seen.update(("test", test) for test in tests)
        for test, after in zip_longest(tests, tests[1:]):
            if after is None or not is_range_check(test, after):
                self.count_expr(test)

    def always_true(self, test: tir.Expr) -> bool:
        value = evaluate_lanes(test, self.values)
        return value is not None and bool(np.all(value))

    def count_store(self, node: tir.BufferStore) -> None:
        """Charge a store; to a register, only the move of a value that exists."""
        self.count_expr(node.value)
        self.charge_address_arguments(node.indices)
        buffer = node.buffer
        if buffer.dtype == INT16 and buffer.scope == "reg":
            # Such a register holds a number of a shape, on which loops depend.
            self.values[buffer.name] = evaluate_lanes(node.value, self.values)
        if buffer.scope != "reg":
            self.charge(f"{_PREFIXES.get(buffer.dtype, '')}store", 1)
        elif isinstance(node.value, tir.IntImm | tir.FloatImm | tir.Var):
            self.charge("move", 1)

    def count_loop(self, node: tir.For) -> None:
        start = evaluate_lanes(node.start, self.values)
        extent = evaluate_lanes(node.extent, self.values)
        self.count_expr(node.extent)
        trips = np.maximum(_UNKNOWN_TRIPS if extent is None else extent, 0)
        position = np.floor(sample_range(len(self.levels)) * trips).astype(np.int64)
        self.values[node.var.name] = position + (0 if start is None else start)
        self.depth[node.var.name] = len(self.levels)
        trips = np.ceil(trips / iterations_together(node))
        fixed = node.extent.value if isinstance(node.extent, tir.IntImm) else None
        is_loop = stays_loop(node)
        is_short = fixed is not None and fixed <= SHORT_LOOP_MAX
        if is_loop and not is_short:
            self.charge("entry", 1)
        copies = float(trips.mean()) if node.kind == "unrolled" else 1.0
        with self.scale(trips, copies):
            self.levels.append(_OpenLoop(self.runs, self.copies))
            if is_loop:
                self.charge("short_loop" if is_short else "loop", 1)
                self.charge("spill", max(self.live_values(node) - self.registers, 0))
            self.count_stmt(node.body)
            self.levels.pop()

    def live_values(self, loop: tir.For) -> int:
        """Return the values and addresses that an innermost loop keeps.

        The result is 0 for outer loops and assembly.
        """
        for stmt in statements(loop.body):
            if isinstance(stmt, tir.Evaluate | tir.While):
                return 0
            if isinstance(stmt, tir.For) and stays_loop(stmt):
                return 0
        values: set[str] = set()
        places: dict[str, int] = {}
        for part in walk(loop.body):
            match part:
                case tir.Var(name=name) if name in self.data:
                    values.add(name)
                case tir.BufferLoad(buffer=buffer) | tir.BufferStore(buffer=buffer):
                    is_register = buffer.scope == "reg"
                    places[buffer.name] = buffer.elements if is_register else 1
        return len(values) + sum(places.values()) + 1

    def charge_asm_block(self, call: tir.IntrinsicCall) -> None:
        self.charge("block", 1)
        intrinsic = self.intrinsics[call.name]
        if intrinsic.is_walk and intrinsic.count is not None:
            numbers = [self._argument(arg) for arg in call.args]
            self.charge("accessed", intrinsic.count(numbers) / _WALK_PER_LOAD)
            return
        accessed_bytes = 0
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr):
                accessed_bytes += arg.extent * arg.buffer.dtype.size_bytes
        is_program = self.cycles_of(call.name) is not None
        kind = "program_accessed" if is_program else "accessed"
        self.charge(kind, accessed_bytes / 4)

    def count_view(self, view: tir.Buffer, source: tir.AccessPtr) -> None:
        self.count_expr(source.offset)
        if not isinstance(source.offset, tir.IntImm):
            self.charge_once(source, "window", self.loop_level(source.offset))
        strides = view.strides or ()
        if len(strides) > 1 and strides[0] > strides[-1]:
            self.charge("row", view.shape[0])

    def count_expr(self, node: tir.Expr) -> None:
        """Charge an expression once; repeated subexpressions are the same object."""
        if isinstance(node, _IMMEDIATES) or id(node) in self.visited:
            return
        self.visited.add(id(node))
        match node:
            case tir.Binary():
                self.count_binary(node)
            case tir.Var(name=name) if name in self.arguments:
                self.charge("argument", 1)
            case tir.BufferLoad():
                self.count_load(node)
            case tir.AccessPtr(offset=offset):
                self.count_expr(offset)
            case tir.Not(a=a) | tir.Cast(value=a):
                self.count_expr(a)
                is_double = FLOAT64 in (a.dtype, node.dtype)
                if is_double or a.dtype.is_float != node.dtype.is_float:
                    kind = "double_cast" if is_double else "float_cast"
                    self.charge_arithmetic(node, kind)
            case tir.Select(cond=cond, a=a, b=b):
                self.count_select(node, cond, a, b)
            case tir.IntrinsicCall(name=name, args=args):
                for part in args:
                    self.count_expr(part)
                self.count_call(name, args)

    def count_select(
        self, node: tir.Select, cond: tir.Expr, a: tir.Expr, b: tir.Expr
    ) -> None:
        """Charge a selection; around calls it is a branch, taken half of the time."""
        match cond:
            case tir.Binary("ne" | "eq", tir.IntrinsicCall() as call, tir.IntImm(0)):
                self.count_expr(call)  # the call has set the flags
            case _:
                self.count_expr(cond)
        for part in (a, b):
            with self.scale(0.5 if has_call(part) else 1.0):
                self.count_expr(part)
        if not (has_call(a) or has_call(b)):
            self.charge_arithmetic(node, "select")

    def count_load(self, node: tir.BufferLoad) -> None:
        """Charge a load; registers are free, constants cost one more, hoisted load."""
        self.charge_address_arguments(node.indices)
        kind = f"{_PREFIXES.get(node.buffer.dtype, '')}load"
        if node.buffer.scope == "const":
            depth = max(map(self.loop_level, node.indices), default=0)
            self.charge_once(node, kind, depth)
            if any(map(self.is_data, node.indices)):
                self.charge("lookup", 1)
        elif node.buffer.scope != "reg":
            self.charge(kind, 1)

    def charge_address_arguments(self, indices: Iterable[Node]) -> None:
        for index in indices if self.arguments else ():
            if not self.charge_argument_product(index):
                if isinstance(index, tir.Var):
                    self.charge("argument", index.name in self.arguments)
                self.charge_address_arguments(children(index))

    def charge_argument_product(self, node: Node) -> bool:
        """If `node` is an index times a scalar parameter, charge it and return True."""
        match node:
            case tir.Binary("mul", a, tir.Var(name=name)) if (
                name in self.arguments and self.loop_level(a)
            ):
                self.charge_once((node,), "argument", self.loop_level(a))
                self.charge_address_arguments((a,))
                return True
        return False

    def count_binary(self, node: tir.Binary) -> None:
        kind, a, b = _ARITHMETIC.get(node.op, "compare"), node.a, node.b
        if kind == "clamp" and isinstance(a, tir.Binary):
            limits = clamp_limits(node, a)
            if limits is not None:
                kind, a = "saturate" if is_saturation(*limits) else "clip", a.a
        if kind == "shift" and not isinstance(b, tir.IntImm):
            kind = "shift_by"
        if kind == "divide" and isinstance(b, tir.IntImm):
            kind = "divide_fixed"
        if not self.is_data(node) and self.charge_argument_product(node):
            self.count_expr(a)
            self.charge_arithmetic(node, kind)
            return
        self.count_expr(a)
        if node.op == "and" and is_range_check(a, b):
            return  # the range check is one unsigned comparison, charged with `a`
        match b:
            case tir.Binary("mul", x, y) if node.op == "add" and self.is_data(b):
                kind = "multiply_add"
                self.count_expr(x)
                self.count_expr(y)
            case _:
                self.count_expr(b)
        self.charge_arithmetic(node, f"{_PREFIXES.get(a.dtype, '')}{kind}")

    def charge_arithmetic(self, node: tir.Expr, kind: str) -> None:
        """Charge arithmetic; that of indices once, outside of loops that keep it."""
        if self.is_data(node):
            self.charge(kind, 1)
        else:
            self.charge_once(node, _ON_INDICES.get(kind, kind), self.loop_level(node))

    def is_data(self, node: Node) -> bool:
        match node:
            case tir.BufferLoad() | tir.IntrinsicCall() | tir.AccessPtr():
                return True
            case tir.Var(name=name):
                return name in self.data
            case tir.IntImm() | tir.FloatImm():
                return False
        known = self.is_data_by_id.get(id(node))
        if known is None:
            known = any(map(self.is_data, children(node)))
            self.is_data_by_id[id(node)] = known
        return known

    def charge_once(self, node: object, kind: str, depth: int) -> None:
        level = self.levels[min(depth, len(self.levels) - 1)]
        seen_before = len(level.seen)
        level.seen.add(node)  # adding first avoids hashing the expression twice
        if len(level.seen) == seen_before:
            return
        inner = depth >= len(self.levels) - 1
        self.done[kind] += self.runs if inner else min(level.runs, self.runs)
        self.written[kind] += self.copies if inner else min(level.copies, self.copies)

    def count_call(self, name: str, args: Sequence[tir.Expr]) -> None:
        intrinsic = self.intrinsics.get(name)
        if intrinsic is None:
            raise InternalError(f"intrinsic {name} is not in the table")
        kinds = (name + form for form in operand_forms(args))
        kind = next((each for each in kinds if each in self.priced), "intrinsic")
        executed = intrinsic.instructions if kind == "intrinsic" else 1
        numbers = [self._argument(arg) for arg in args]
        if intrinsic.count is not None:
            executed = intrinsic.count(numbers)
        cycles_of = self.cycles_of(name)
        if cycles_of is None:
            self.done[kind] += executed * self.runs
        else:
            self.done["program"] += executed * self.runs
            self.done["program_cycles"] += cycles_of(self.core, numbers) * self.runs
        if intrinsic.count is None:
            self.written[kind] += executed * self.copies
        elif intrinsic.instructions > 1:  # a program, which stands in the code as it is
            self.written["program"] += intrinsic.instructions * self.copies
        else:  # the body contains loops
            text = next(iter(intrinsic.text.values()), intrinsic.portable)
            self.written["line"] += len(text.splitlines()) * self.copies

    def cycles_of(self, name: str) -> CyclesOnCore | None:
        """Return the model of an intrinsic's cycles, None if instructions price it."""
        if not self.core or name in self.priced:
            return None
        return self.intrinsics[name].cycles

    def _argument(self, arg: tir.Expr) -> int:
        if isinstance(arg, tir.AccessPtr):
            return arg.extent
        value = evaluate_lanes(arg, self.values)
        return value if isinstance(value, int) else 0

    def loop_level(self, node: Node) -> int:
        match node:
            case tir.Var(name=name):
                return self.depth.get(name, 0)
            case tir.BufferLoad() | tir.IntrinsicCall() | tir.AccessPtr():
                return len(self.levels) - 1
            case tir.IntImm() | tir.FloatImm():
                return 0
        if id(node) not in self.level_by_id:
            level = max(map(self.loop_level, children(node)), default=0)
            self.level_by_id[id(node)] = level
        return self.level_by_id[id(node)]
