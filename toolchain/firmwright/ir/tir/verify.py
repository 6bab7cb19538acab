"""Judges TIR: the second opinion on lowering and on every pass.

In: a PrimFunc in its module, or a whole module, and the tables of operators and intrinsics. Out:
nothing, or one ModelError with a line for everything that is wrong. The invariants:

Names. Buffers and variables of a function have one name each. They are declared before use, and a
use is equal to the declaration. Tables know every entry under its own name.
Types. Operands of an operator have one dtype; comparisons and conditions are bool; a store, a let,
a loop's range and an argument have the dtype of their place; literals fit theirs.
Bounds. Each index lies within its axis, each pointer's extent within its buffer, each window within
its source: proved by intervals of linear forms, refined by loops, lets, conditions, min and max. An
index that depends on data must be guarded so that this can be proved.
Registers. Buffers of scope `reg` are indexed by constants and never pointed to.
Access. Nothing is written to `in` and `const` parameters, linked constants or windows opened for
reading.
Alignment. What a window or parameter claims follows from the source's alignment and the offset.
Intrinsics. They are in the table; arguments match operands in kind, dtype, access and extent;
what a pointer advances by stays inside its extent.
Scalar parameters. One that is the same number at every call stands for that number.
Calls. Only the AOT main calls; callees are kernels of the module; arguments match parameters in
number, dtype, size, access. There is no recursion.
Phases. What other devices do while the main goes on is begun and ended once on every path, and
nobody touches what they work on meanwhile (phases.py).
Plan. Every planned buffer is placed in one of its pools, aligned, in range, and keeps its
conflicts; two that live at once without a conflict lie apart; pools stay within their limits and
are no larger than what lies in them; the windows of the AOT main are where it says.
I/O. Inputs and outputs name buffers of the AOT main.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.base.dtypes import BOOL
from firmwright.base.errors import ModelError
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.opdef import OpTable
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ir.tir.affine import Bounds, has_load
from firmwright.ir.tir.async_calls import diagnose_async_calls
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.printer import format_expr
from firmwright.ir.tir.rewrite import substitute
from firmwright.ir.tir.traversal import local_names, prim_calls, walk
from firmwright.ir.tir.verify_exprs import ExprVerifier, VisibleBuffer, span_elements
from firmwright.ir.tir.verify_plan import diagnose_plan

DIAGNOSTICS_SHOWN_MAX = 20
_READ_ONLY_ROLES = ("in", "const")


def verify_prim_func(func: tir.PrimFunc, module: IRModule, intrinsics: IntrinsicTable) -> None:
    """ModelError naming everything that is wrong with `func`."""
    raise_diagnostics(diagnose_prim_func(func, module, intrinsics), module.name)


def verify_module(module: IRModule, ops: OpTable, intrinsics: IntrinsicTable) -> None:
    """ModelError naming everything that is wrong with `module`."""
    problems = _diagnose_tables(module)
    for func in module.functions.values():
        if isinstance(func, Function):
            problems += diagnose_graph(func, module, ops)
        else:
            problems += diagnose_prim_func(func, module, intrinsics)
    if module.plan is not None:
        problems += diagnose_plan(module.plan, module)
    raise_diagnostics(problems, module.name)


def raise_diagnostics(problems: Sequence[str], where: str) -> None:
    """One error for all of them; nothing if there are none."""
    if not problems:
        return
    lines = list(problems[:DIAGNOSTICS_SHOWN_MAX])
    if len(problems) > DIAGNOSTICS_SHOWN_MAX:
        lines.append(f"and {len(problems) - DIAGNOSTICS_SHOWN_MAX} more")
    raise ModelError("\n".join(lines), where=where)


def diagnose_prim_func(
    func: tir.PrimFunc, module: IRModule, intrinsics: IntrinsicTable
) -> list[str]:
    """A line for everything that is wrong with `func`."""
    checker = _PrimFuncVerifier(func, module, intrinsics)
    checker.function()
    place = f"@{func.name}" if func.span == Span("") else f"@{func.name} ({func.span})"
    return [f"{place}: {problem}" for problem in checker.problems]


class _PrimFuncVerifier(ExprVerifier):
    """Walks the statements of one function with what is known at each."""

    def __init__(self, func: tir.PrimFunc, module: IRModule, intrinsics: IntrinsicTable) -> None:
        super().__init__(intrinsics)
        self.func = func
        self.module = module
        self.names: set[str] = set()

    def function(self) -> None:
        for param in self.func.params:
            self._param(param)
        target = self.func.attrs.get("target", "")
        if target and target not in self.module.targets:
            self.problem(f"target {target!r} is not in the module")
        self._stmt(self._settled_body(), Bounds())
        if not self.problems and self.func.attrs.get("aot_main"):
            self.problems += diagnose_async_calls(self.func, self.module.functions)

    def _settled_body(self) -> tir.Stmt:
        """The body with the values of scalar parameters that are the same at every call."""
        scalars = {p.name: n for n, p in enumerate(self.func.params) if p.role == "scalar"}
        main = self.module.functions.get(str(self.module.attrs.get("entry", "main")))
        if not scalars or not isinstance(main, tir.PrimFunc):
            return self.func.body
        calls = [call.args for call in prim_calls(main.body) if call.callee == self.func.name]
        known: dict[str, tir.Expr] = {}
        for name, place in scalars.items():
            match list(dict.fromkeys(args[place] for args in calls if place < len(args))):
                case [tir.IntImm() as value]:
                    known[name] = value
        return substitute(self.func.body, known) if known else self.func.body

    def _param(self, param: tir.Param) -> None:
        value = param.value
        if isinstance(value, tir.Var):
            if param.role != "scalar":
                self.problem(f"parameter {value.name} is a variable of role {param.role}")
            self._bind(value)
            return
        if param.role == "scalar":
            self.problem(f"parameter {value.name} is a buffer of role scalar")
        read_only = f"the {param.role} parameter {value.name}"
        self._declare(value, read_only if param.role in _READ_ONLY_ROLES else "", value.name)

    # ---- names -------------------------------------------------------------------------------

    def _unique(self, name: str) -> None:
        if name in self.names:
            self.problem(f"the name {name} is declared twice")
        self.names.add(name)

    def _bind(self, var: tir.Var) -> None:
        self._unique(var.name)
        self.vars[var.name] = var

    def _declare(self, buffer: tir.Buffer, read_only: str, root: str) -> None:
        self._unique(buffer.name)
        if any(n < 1 for n in buffer.shape):
            self.problem(f"buffer {buffer.name} has an empty or negative axis")
        strides = buffer.strides
        if strides is not None and (
            len(strides) != len(buffer.shape) or min(strides, default=1) < 0
        ):
            self.problem(f"buffer {buffer.name} has strides that do not suit its shape")
        if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
            self.problem(f"buffer {buffer.name} has alignment {buffer.alignment}, no power of two")
        self.buffers[buffer.name] = VisibleBuffer(buffer, read_only, root)

    # ---- statements --------------------------------------------------------------------------

    def _stmt(self, stmt: tir.Stmt, bounds: Bounds) -> None:
        """One statement. Scopes that lie inside one another are followed in a loop."""
        declared: list[str] = []
        while isinstance(stmt, tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let):
            declared.append(stmt.var.name if isinstance(stmt, tir.Let) else stmt.buffer.name)
            bounds = self._scope(stmt, bounds)
            stmt = stmt.body
        match stmt:
            case tir.Seq(stmts):
                for each in stmts:
                    self._stmt(each, bounds)
            case tir.BufferStore():
                self._store(stmt, bounds)
            case tir.Evaluate(call):
                self.statement_call(call, bounds)
            case tir.For():
                self._for(stmt, bounds)
            case tir.If(cond, then, orelse):
                self.typed(cond, BOOL, "the condition", bounds)
                self._stmt(then, self._guarded(cond, True, then, bounds))
                if orelse is not None:
                    self._stmt(orelse, self._guarded(cond, False, orelse, bounds))
            case tir.While(cond, body):
                self.typed(cond, BOOL, "the condition", bounds)
                self._stmt(body, bounds)
            case tir.PrimFuncCall():
                self._call(stmt, bounds)
        for name in declared:
            self.buffers.pop(name, None)
            self.vars.pop(name, None)

    def _scope(
        self, stmt: tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let, bounds: Bounds
    ) -> Bounds:
        match stmt:
            case tir.Let(var, value):
                self.typed(value, var.dtype, f"the value of {var.name},", bounds)
                self._bind(var)
                if var.dtype.is_int and self.integer(value, f"the value of {var.name}", bounds):
                    return bounds.with_let(var, value)
            case tir.Allocate(buffer, _, kind):
                if (kind == "reg") != (buffer.scope == "reg"):
                    self.problem(
                        f"{buffer.name} has scope {buffer.scope}, its allocate says {kind}"
                    )
                elif buffer.scope in ("const", "pool"):
                    self.problem(f"{buffer.name} of scope {buffer.scope} cannot be allocated")
                self._declare(buffer, "", buffer.name)
            case tir.AllocateConst(buffer, constant):
                self._constant(buffer, constant)
            case tir.DeclBuffer():
                self._window(stmt, bounds)
        return bounds

    def _constant(self, buffer: tir.Buffer, name: str) -> None:
        found = self.module.constants.get(name)
        if found is None:
            self.problem(f"{buffer.name} stands for the constant {name}, which does not exist")
        elif found.dtype != buffer.dtype or found.size_bytes != buffer.size_bytes:
            self.problem(
                f"{buffer.name} has {buffer.size_bytes} bytes of {buffer.dtype.short}, "
                f"its constant {name} {found.size_bytes} of {found.dtype.short}"
            )
        if buffer.scope != "const":
            self.problem(f"{buffer.name} has scope {buffer.scope}, a linked constant has const")
        self._declare(buffer, f"the constant {buffer.name}", buffer.name)

    def _window(self, stmt: tir.DeclBuffer, bounds: Bounds) -> None:
        buffer, source = stmt.buffer, stmt.source
        home = self.pointer(source, bounds)
        have = source.extent * source.buffer.dtype.size_bytes
        need = span_elements(buffer) * buffer.dtype.size_bytes
        if need > have:
            self.problem(
                f"window {buffer.name} spans {need} bytes, its source {format_expr(source)} {have}"
            )
        self.aligned(source, buffer.alignment, f"window {buffer.name}", bounds)
        read_only = "" if home is None else home.read_only
        if "w" not in source.access:
            read_only = read_only or f"the window {buffer.name}, which is opened for reading"
        self._declare(buffer, read_only, buffer.name if home is None else home.root)

    def _store(self, stmt: tir.BufferStore, bounds: Bounds) -> None:
        buffer = stmt.buffer
        self.access(buffer, stmt.indices, bounds)
        self.typed(stmt.value, buffer.dtype, f"the value stored to {buffer.name},", bounds)
        home = self.buffers.get(buffer.name)
        if home is not None and home.read_only:
            self.problem(f"a store writes to {home.read_only}")

    def _for(self, stmt: tir.For, bounds: Bounds) -> None:
        name = stmt.var.name
        good = True
        for what, part in (("start", stmt.start), ("extent", stmt.extent)):
            good = self.integer(part, f"the {what} of loop {name},", bounds) and good
            self.typed(part, stmt.var.dtype, f"the {what} of loop {name},", bounds)
        self._bind(stmt.var)
        inner = bounds.with_loop(stmt.var, stmt.start, stmt.extent) if good else bounds
        self._stmt(stmt.body, inner)
        self.vars.pop(name, None)

    def _guarded(self, cond: tir.Expr, holds: bool, body: tir.Stmt, bounds: Bounds) -> Bounds:
        """What is known in a branch; a condition on memory counts unless it is written there."""
        if isinstance(cond, tir.Binary) and cond.op == "and" and holds and cond.dtype == BOOL:
            return self._guarded(cond.b, True, body, self._guarded(cond.a, True, body, bounds))
        if has_load(cond) and self._read_roots(cond) & self._written_roots(body):
            return bounds
        return bounds.assume(cond, holds)

    def _read_roots(self, cond: tir.Expr) -> set[str]:
        return {self._root(n.buffer) for n in walk(cond) if isinstance(n, tir.BufferLoad)}

    def _written_roots(self, body: tir.Stmt) -> set[str]:
        """Buffers that `body` may write; windows declared inside it count by their pointers."""
        found: set[str] = set()
        for node in walk(body):
            match node:
                case tir.BufferStore(buffer):
                    found.add(self._root(buffer))
                case tir.AccessPtr(buffer, access=access) if "w" in access:
                    found.add(self._root(buffer))
                case tir.Evaluate(call):
                    args = call.args
                    found |= {self._root(a.buffer) for a in args if isinstance(a, tir.BufferLoad)}
        return found

    def _root(self, buffer: tir.Buffer) -> str:
        home = self.buffers.get(buffer.name)
        return buffer.name if home is None else home.root

    # ---- calls of kernels --------------------------------------------------------------------

    def _call(self, call: tir.PrimFuncCall, bounds: Bounds) -> None:
        if not self.func.attrs.get("aot_main"):
            self.problem(f"a kernel calls @{call.callee}: only the AOT main may call")
        callee = self.module.functions.get(call.callee)
        if not isinstance(callee, tir.PrimFunc):
            self.problem(f"@{call.callee} is called but is no PrimFunc of the module")
            return
        if callee.attrs.get("aot_main"):
            self.problem(f"@{call.callee} is called but is an AOT main: recursion is not allowed")
        if len(call.args) != len(callee.params):
            self.problem(
                f"@{call.callee} is called with {len(call.args)} arguments, "
                f"has {len(callee.params)} parameters"
            )
            return
        for param, arg in zip(callee.params, call.args, strict=True):
            self._argument(f"{param.name} of @{call.callee}", param, arg, bounds)

    def _argument(self, what: str, param: tir.Param, arg: tir.Expr, bounds: Bounds) -> None:
        if isinstance(param.value, tir.Var):
            self.typed(arg, param.value.dtype, f"{what}:", bounds)
            return
        if not isinstance(arg, tir.AccessPtr):
            self.problem(f"{what}: {format_expr(arg)} must be a pointer")
            return
        self.pointer(arg, bounds)
        shown, source, buffer = format_expr(arg), arg.buffer, param.value
        if source.dtype != buffer.dtype and source.scope != "pool":
            self.problem(f"{what}: {shown} is to {source.dtype.short}, not {buffer.dtype.short}")
        need = span_elements(buffer) * buffer.dtype.size_bytes
        if arg.extent * source.dtype.size_bytes < need:
            self.problem(
                f"{what}: {shown} is good for {arg.extent * source.dtype.size_bytes} bytes, "
                f"{need} are needed"
            )
        needed = {"in": "r", "const": "r", "out": "w"}.get(param.role, "rw")
        if not set(needed) <= set(arg.access):
            self.problem(f"{what}: {shown} allows {arg.access}, {needed} is needed")
        self.aligned(arg, buffer.alignment, what, bounds)


def _diagnose_tables(module: IRModule) -> list[str]:
    """Entries under their own names; constants as large as their types; an entry that exists."""
    problems = [
        f"{what} {entry.name!r} is known under the name {name!r}"
        for what, table in (("function", module.functions), ("constant", module.constants))
        for name, entry in table.items()
        if entry.name != name
    ]
    for constant in module.constants.values():
        elements = tir.Buffer(constant.name, constant.dtype, constant.shape).elements
        if elements * constant.dtype.size_bytes != constant.size_bytes:
            problems.append(f"constant {constant.name} has {constant.size_bytes} bytes")
    entry = module.attrs.get("entry")
    if entry is not None and entry not in module.functions:
        problems.append(f"the entry {entry!r} is no function of the module")
    problems += _diagnose_io(module)
    names = [pool.name for pool in module.pools]
    problems += [
        f"pool {name} is declared twice" for name in {n for n in names if names.count(n) > 1}
    ]
    return problems


def _diagnose_io(module: IRModule) -> list[str]:
    main = module.functions.get(str(module.attrs.get("entry", "")))
    if not isinstance(main, tir.PrimFunc):
        return []
    known = local_names(main)
    return [
        f"the model's {tensor.name} is in {tensor.buffer}, which @{main.name} does not declare"
        for tensor in (*module.io.inputs, *module.io.outputs, *module.io.state)
        if tensor.buffer not in known
    ]
