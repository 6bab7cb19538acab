"""Verifier of TIR functions and modules, run on the output of lowering and passes.

* Names: buffers and variables have unique names in a function, are declared before use,
  and uses equal the declaration. Table entries are stored under their own name.
* Types: operands of an operator have one dtype; comparisons and conditions are bool;
  stores, lets, loop ranges and arguments have the dtype of their destination; literals
  fit their dtype.
* Bounds: each index is within its axis, each pointer extent within its buffer, each
  view within its source, as proven by intervals of linear forms under loops, lets,
  conditions, min and max. Data-dependent indices must be guarded.
* Registers: `reg` buffers are indexed by constants, and no pointers refer to them.
* Access: `in` and `const` parameters, linked constants and read-only views are not
  written.
* Alignment of views and parameters follows from the alignment of the source and the
  offset.
* Intrinsics are in the table; arguments match operands in kind, dtype, access and
  extent, and a post-increment stays within the extent.
* Scalar parameters with the same value at every call are checked with that value, the
  size of a bounded axis with every value.
* Calls occur only in the AOT main; callees are kernels of the module; arguments match
  parameters in number, dtype, size and access.
* Asynchronous calls satisfy the invariants in `verify_async_calls.py`, and arguments
  are in pools that the device can access (`verify_plan.py`).
* Plan: every planned buffer is in one of its pools, aligned and in range, and satisfies
  its conflicts; buffers live at the same time without a conflict are disjoint; pools
  respect their limits and are not larger than their contents; views of the AOT main
  match the plan.
* Requests for the place of a tensor are kept (`ir/verify_requests.py`).
* I/O: inputs and outputs name buffers of the AOT main.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from firmwright.base.dtypes import BOOL
from firmwright.base.errors import ModelError
from firmwright.base.resource_limits import check_expansion
from firmwright.ir import tir
from firmwright.ir.bounded_axis import select_size
from firmwright.ir.core import Span
from firmwright.ir.graph import Function, MeaningTable, called_functions
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.printer import ScopedStmt, format_expr
from firmwright.ir.tir.traversal import (
    Node,
    local_names,
    prim_calls,
    substitute,
    walk,
)
from firmwright.ir.tir.verify_async_calls import diagnose_async_calls
from firmwright.ir.tir.verify_exprs import ExprVerifier, VisibleBuffer
from firmwright.ir.tir.verify_plan import diagnose_devices, diagnose_plan
from firmwright.ir.verify_requests import diagnose_requests

DIAGNOSTICS_SHOWN_MAX = 20
REGISTERS_MAX = 1 << 12
"""Limit of the elements of a `reg` buffer, each of which becomes a variable in C."""
_READ_ONLY_ROLES = ("in", "const")


def verify_module(
    module: IRModule, ops: MeaningTable, intrinsics: IntrinsicTable
) -> None:
    """Raise ModelError with diagnostics if a function, table or the plan is invalid."""
    graphs = [f for f in module.functions.values() if isinstance(f, Function)]
    names = {graph.name for graph in graphs}
    sizes_and_callees: dict[str, tuple[int, list[str]]] = {}
    for graph in graphs:
        callees: list[str] = []
        for call in graph.body:
            callees += [name for name in called_functions(call) if name in names]
        sizes_and_callees[graph.name] = (len(graph.body), callees)
    check_expansion(sizes_and_callees, module.name)
    diagnostics = _diagnose_tables(module)
    for func in module.functions.values():
        if isinstance(func, Function):
            diagnostics += diagnose_graph(func, module, ops)
        else:
            diagnostics += diagnose_prim_func(func, module, intrinsics)
    if module.plan is not None:
        diagnostics += diagnose_plan(module.plan, module)
    diagnostics += diagnose_requests(module)
    raise_diagnostics(diagnostics, module.name)


def raise_diagnostics(diagnostics: Sequence[str], where: str) -> None:
    lines = list(diagnostics[:DIAGNOSTICS_SHOWN_MAX])
    if len(diagnostics) > DIAGNOSTICS_SHOWN_MAX:
        lines.append(f"and {len(diagnostics) - DIAGNOSTICS_SHOWN_MAX} more")
    if lines:
        raise ModelError("\n".join(lines), where=where)


def diagnose_prim_func(
    func: tir.PrimFunc, module: IRModule, intrinsics: IntrinsicTable
) -> list[str]:
    axis = module.settings.axis
    sizes: Iterable[int | None] = (None,)
    if axis is not None and any(p.value == axis.variable for p in func.params):
        sizes = axis.sizes
    problems: dict[str, None] = {}
    for size in sizes:
        checker = _PrimFuncVerifier(func, module, intrinsics, size)
        checker.function()
        problems |= dict.fromkeys(checker.diagnostics)
    place = f"@{func.name}" if func.span == Span("") else f"@{func.name} ({func.span})"
    return [f"{place}: {problem}" for problem in problems]


class _PrimFuncVerifier(ExprVerifier):
    def __init__(
        self,
        func: tir.PrimFunc,
        module: IRModule,
        intrinsics: IntrinsicTable,
        size: int | None = None,
    ) -> None:
        super().__init__(intrinsics)
        self.size = size
        self.func = func
        self.module = module
        self.names: set[str] = set()

    def function(self) -> None:
        for param in self.func.params:
            self._param(param)
        target = self.func.attrs.get("target", "")
        if target and target not in self.module.targets:
            self.report(f"target {target!r} is not in the module")
        self._stmt(self._body_for_all_calls(), self.bounds)
        if not self.diagnostics and self.func.attrs.get("aot_main"):
            self.diagnostics += diagnose_async_calls(self.func, self.module.functions)
            self.diagnostics += diagnose_devices(self.func, self.module)

    def _body_for_all_calls(self) -> tir.Stmt:
        """Return the body with scalar parameters replaced by the value of all calls."""
        body, params = self.func.body, self.func.params
        axis = self.module.settings.axis
        if axis is not None and self.size is not None:
            body = select_size(body, axis, self.size)
        main = self.module.find_entry()
        scalars = {p.name: n for n, p in enumerate(params) if p.role == "scalar"}
        if not scalars or not isinstance(main, tir.PrimFunc):
            return body
        calls = [c for c in prim_calls(main.body) if c.callee == self.func.name]
        constants: dict[str, tir.Expr] = {}
        for name, place in scalars.items():
            passed = {call.args[place] for call in calls if place < len(call.args)}
            match list(passed):
                case [tir.IntImm() as value]:
                    constants[name] = value
                case [tir.Var() as var] if self.size is not None and (
                    var == params[place].value == self._size_var
                ):
                    constants[name] = tir.IntImm(self.size, params[place].value.dtype)
        return substitute(body, constants) if constants else body

    @property
    def _size_var(self) -> tir.Var | None:
        """The size of the bounded axis, if the function has a value for it."""
        axis = self.module.settings.axis
        return None if axis is None or self.size is None else axis.variable

    def _param(self, param: tir.Param) -> None:
        value = param.value
        if isinstance(value, tir.Var):
            if param.role != "scalar":
                found = f"parameter {value.name} is a variable"
                self.report(f"{found} of role {param.role}")
            self._bind(value)
            return
        if param.role == "scalar":
            self.report(f"parameter {value.name} is a buffer of role scalar")
        read_only = ""
        if param.role in _READ_ONLY_ROLES:
            read_only = f"the {param.role} parameter {value.name}"
        self._declare(value, read_only, value.name)

    def _unique(self, name: str) -> None:
        if name in self.names:
            self.report(f"the name {name} is declared twice")
        self.names.add(name)

    def _bind(self, var: tir.Var) -> None:
        self._unique(var.name)
        self.vars[var.name] = var

    def _declare(self, buffer: tir.Buffer, read_only: str, root: str) -> None:
        self._unique(buffer.name)
        if min(buffer.shape, default=1) < 1:
            self.report(f"buffer {buffer.name} has an empty or negative axis")
        if buffer.scope == "reg" and buffer.elements > REGISTERS_MAX:
            count = f"{buffer.elements:,} elements, at most {REGISTERS_MAX:,}"
            self.report(f"buffer {buffer.name} has {count}")
        strides = (0,) * len(buffer.shape) if buffer.strides is None else buffer.strides
        if len(strides) != len(buffer.shape) or min(strides, default=1) < 0:
            self.report(f"buffer {buffer.name} has strides that do not match its shape")
        if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
            found = f"buffer {buffer.name} has alignment {buffer.alignment}"
            self.report(f"{found}, which is not a power of two")
        self.buffers[buffer.name] = VisibleBuffer(buffer, read_only, root)

    def _stmt(self, stmt: tir.Stmt, bounds: Bounds) -> None:
        """Verify one statement; nested scopes are verified in a loop, to any depth."""
        outer, self.bounds = self.bounds, bounds
        declared: list[str] = []
        while isinstance(stmt, ScopedStmt):
            if isinstance(stmt, tir.Let):
                declared.append(stmt.var.name)
            else:
                declared.append(stmt.buffer.name)
            self._scope(stmt)
            stmt = stmt.body
        match stmt:
            case tir.Seq(stmts):
                for each in stmts:
                    self._stmt(each, self.bounds)
            case tir.BufferStore():
                self._store(stmt)
            case tir.Evaluate(call):
                self.statement_call(call)
            case tir.For():
                self._for(stmt)
            case tir.If(cond, then, orelse):
                self.typed(cond, BOOL, "the condition")
                self._stmt(then, self._guarded(cond, True, then, self.bounds))
                if orelse is not None:
                    self._stmt(orelse, self._guarded(cond, False, orelse, self.bounds))
            case tir.While(cond, body):
                self.typed(cond, BOOL, "the condition")
                self._stmt(body, self.bounds)
            case tir.PrimFuncCall():
                self._call(stmt)
        for name in declared:
            self.buffers.pop(name, None)
            self.vars.pop(name, None)
        self.bounds = outer

    def _scope(self, stmt: ScopedStmt) -> None:
        match stmt:
            case tir.Let(var, value):
                self.typed(value, var.dtype, f"the value of {var.name},")
                self._bind(var)
                self._check_size(var, value)
                if var.dtype.is_int and self.integer(value, f"the value of {var.name}"):
                    self.bounds = self.bounds.with_let(var, value)
                    axis = self.module.settings.axis
                    if axis is not None and var == axis.variable:
                        self.bounds = self.bounds.assume(axis.condition)
            case tir.Allocate(buffer, _, kind):
                name, scope = buffer.name, buffer.scope
                if (kind == "reg") != (scope == "reg"):
                    self.report(f"{name} has scope {scope}, its allocate has {kind}")
                elif scope in ("const", "pool"):
                    self.report(f"{name} of scope {scope} cannot be allocated")
                self._declare(buffer, "", buffer.name)
            case tir.AllocateConst(buffer, constant):
                self._constant(buffer, constant)
            case tir.DeclBuffer():
                self._window(stmt)

    def _check_size(self, var: tir.Var, value: tir.Expr) -> None:
        """Check that the size of a bounded axis is that of the axis's input."""
        axis = self.module.settings.axis
        if axis is None or var != axis.variable:
            return
        inputs = {t.buffer for t in self.module.io.inputs if t.name == axis.name}
        if not isinstance(value, tir.BufferLoad) or value.buffer.name not in inputs:
            self.report(f"{var.name} is not the input {axis.name}")

    def _constant(self, buffer: tir.Buffer, name: str) -> None:
        constant = self.module.constants.get(name)
        if constant is None:
            problem = f"refers to the constant {name}, which does not exist"
            self.report(f"{buffer.name} {problem}")
        elif constant.dtype != buffer.dtype or constant.size_bytes != buffer.size_bytes:
            self.report(
                f"{buffer.name} has {buffer.size_bytes} bytes of {buffer.dtype.short}, "
                f"its constant {name} {constant.size_bytes} of {constant.dtype.short}"
            )
        if buffer.scope != "const":
            problem = f"has scope {buffer.scope}, a linked constant has const"
            self.report(f"{buffer.name} {problem}")
        self._declare(buffer, f"the constant {buffer.name}", buffer.name)

    def _window(self, stmt: tir.DeclBuffer) -> None:
        buffer, source = stmt.buffer, stmt.source
        home = self.pointer(source)
        have = source.extent * source.buffer.dtype.size_bytes
        need = buffer.span_elements * buffer.dtype.size_bytes
        if need > have:
            self.report(
                f"view {buffer.name} spans {need} bytes, its source "
                f"{format_expr(source)} {have}"
            )
        self.aligned(source, buffer.alignment, f"view {buffer.name}")
        read_only = "" if home is None else home.read_only
        if "w" not in source.access:
            read_only = read_only or f"the view {buffer.name}, which is read-only"
        self._declare(buffer, read_only, buffer.name if home is None else home.root)

    def _store(self, stmt: tir.BufferStore) -> None:
        buffer = stmt.buffer
        self.access(buffer, stmt.indices)
        self.typed(stmt.value, buffer.dtype, f"the value stored to {buffer.name},")
        home = self.buffers.get(buffer.name)
        if home is not None and home.read_only:
            self.report(f"a store writes to {home.read_only}")

    def _for(self, stmt: tir.For) -> None:
        name = stmt.var.name
        good = True
        for subject, part in (("start", stmt.start), ("extent", stmt.extent)):
            good = self.integer(part, f"the {subject} of loop {name},") and good
            self.typed(part, stmt.var.dtype, f"the {subject} of loop {name},")
        self._bind(stmt.var)
        inner = self.bounds
        if good:
            inner = inner.with_loop(stmt.var, stmt.start, stmt.extent)
        self._stmt(stmt.body, inner)
        self.vars.pop(name, None)

    def _guarded(
        self, cond: tir.Expr, holds: bool, body: tir.Stmt, bounds: Bounds
    ) -> Bounds:
        """Return the bounds in a branch, without conditions on memory it writes."""
        match cond:
            case tir.Binary("and", a, b) if holds and cond.dtype == BOOL:
                first = self._guarded(a, True, body, bounds)
                return self._guarded(b, True, body, first)
        read = self._loaded_roots(walk(cond))
        if read and read & self._written_roots(body):
            return bounds
        return bounds.assume(cond, holds)

    def _written_roots(self, body: tir.Stmt) -> set[str]:
        """Return the roots that `body` may write by stores, pointers or intrinsics."""
        roots: set[str] = set()
        for node in walk(body):
            match node:
                case tir.BufferStore(buffer):
                    roots.add(self._root(buffer))
                case tir.AccessPtr(buffer, access=access) if "w" in access:
                    roots.add(self._root(buffer))
                case tir.Evaluate(call):
                    roots |= self._loaded_roots(call.args)
        return roots

    def _loaded_roots(self, nodes: Iterable[Node]) -> set[str]:
        roots: set[str] = set()
        for node in nodes:
            if isinstance(node, tir.BufferLoad):
                roots.add(self._root(node.buffer))
        return roots

    def _root(self, buffer: tir.Buffer) -> str:
        home = self.buffers.get(buffer.name)
        return buffer.name if home is None else home.root

    def _call(self, call: tir.PrimFuncCall) -> None:
        if not self.func.attrs.get("aot_main"):
            self.report(f"a kernel calls @{call.callee}: only the AOT main may call")
        callee = self.module.functions.get(call.callee)
        if not isinstance(callee, tir.PrimFunc):
            self.report(f"@{call.callee} is called but is not a PrimFunc of the module")
            return
        if callee.attrs.get("aot_main"):
            problem = "is called but is an AOT main: recursion is not allowed"
            self.report(f"@{call.callee} {problem}")
        if len(call.args) != len(callee.params):
            found = f"@{call.callee} is called with {len(call.args)} arguments"
            self.report(f"{found}, has {len(callee.params)} parameters")
            return
        for param, arg in zip(callee.params, call.args, strict=True):
            self._argument(f"{param.name} of @{call.callee}", param, arg)

    def _argument(self, subject: str, param: tir.Param, arg: tir.Expr) -> None:
        if isinstance(param.value, tir.Var):
            self.typed(arg, param.value.dtype, f"{subject}:")
            return
        if not isinstance(arg, tir.AccessPtr):
            self.report(f"{subject}: {format_expr(arg)} must be a pointer")
            return
        self.pointer(arg)
        shown = f"{subject}: {format_expr(arg)}"
        source, buffer = arg.buffer, param.value
        if source.dtype != buffer.dtype and source.scope != "pool":
            kinds = f"{source.dtype.short}, not {buffer.dtype.short}"
            self.report(f"{shown} is to {kinds}")
        need = buffer.span_elements * buffer.dtype.size_bytes
        have = arg.extent * source.dtype.size_bytes
        if have < need:
            self.report(f"{shown} covers {have} bytes, {need} are needed")
        needed = {"in": "r", "const": "r", "out": "w"}.get(param.role, "rw")
        if not set(needed) <= set(arg.access):
            self.report(f"{shown} allows {arg.access}, {needed} is needed")
        self.aligned(arg, buffer.alignment, subject)


def _diagnose_tables(module: IRModule) -> list[str]:
    diagnostics: list[str] = []
    tables = (("function", module.functions), ("constant", module.constants))
    for subject, table in tables:
        for name, entry in table.items():
            if entry.name != name:
                stored = f"{subject} {entry.name!r} is stored"
                diagnostics.append(f"{stored} under the name {name!r}")
    for constant in module.constants.values():
        elements = tir.Buffer(constant.name, constant.dtype, constant.shape).elements
        size_bytes = constant.size_bytes
        if elements * constant.dtype.size_bytes != size_bytes:
            diagnostics.append(f"constant {constant.name} has {size_bytes} bytes")
    main = module.entry_name
    if main and main not in module.functions:
        diagnostics.append(f"the entry {main!r} is not a function of the module")
    diagnostics += _diagnose_io(module)
    counts = Counter(pool.name for pool in module.pools)
    for name, count in counts.items():
        if count > 1:
            diagnostics.append(f"pool {name} is declared twice")
    return diagnostics


def _diagnose_io(module: IRModule) -> list[str]:
    main = module.functions.get(module.entry_name)
    if not isinstance(main, tir.PrimFunc):
        return []
    diagnostics: list[str] = []
    names, io = local_names(main), module.io
    for tensor in (*io.inputs, *io.outputs, *io.state):
        if tensor.buffer not in names:
            place = f"the model's {tensor.name} is in {tensor.buffer}"
            diagnostics.append(f"{place}, which @{main.name} does not declare")
    for state in io.state:
        constant, size_bytes = (
            module.constants.get(state.initial),
            state.type.size_bytes,
        )
        if constant is None or constant.size_bytes != size_bytes:
            begin = f"the model's {state.name} begins as {state.initial}"
            diagnostics.append(f"{begin}, which is no constant of {size_bytes} bytes")
    return diagnostics
