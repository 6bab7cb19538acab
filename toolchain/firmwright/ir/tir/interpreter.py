"""Numpy interpreter of PrimFuncs, the reference for schedules and C (decision 0004).

Accesses are bounds-checked, integer overflow is an error, and undefined memory is
poisoned. Independent iterations run as lanes of numpy arrays, in chunks that bound
memory.

An intrinsic's numpy meaning receives pointers as arrays [elements, lanes]. For
statements it returns the new contents of `out` and `inout` registers and of writable
pointers, in operand order; `out` registers are not arguments.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError, PluginError
from firmwright.base.plugin_calls import plugin_call
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.tir import interpreter_runtime as runtime
from firmwright.ir.tir.affine import Affine
from firmwright.ir.tir.interpreter_exprs import ExprCompiler
from firmwright.ir.tir.interpreter_runtime import (
    Array,
    CallFrame,
    Eval,
    Pointer,
    Run,
    Value,
    View,
)
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.loop_vectorizability import LoopScope, is_parallel, private_bytes
from firmwright.ir.tir.traversal import used_buffers

Argument: TypeAlias = "Array | int"
Store: TypeAlias = Callable[[CallFrame, Value], None]
_RootOffsets: TypeAlias = tuple[tuple[str, str, int], ...]

LANES_MAX = 1 << 16
WHILE_STEPS_MAX = 1 << 24


def interpret(
    func: tir.PrimFunc,
    args: Mapping[str, Argument],
    intrinsics: IntrinsicTable,
    functions: Mapping[str, tir.PrimFunc] | None = None,
    constants: Mapping[str, Constant] | None = None,
    *,
    check_overflow: bool = True,
) -> None:
    """Run `func` on `args`, values by parameter name; outputs are written in place.

    `functions` are the possible callees, `constants` the module's table. Without
    `check_overflow` integers wrap in two's complement.
    """
    table = {**(functions or {}), func.name: func}
    machine = Interpreter(
        table, intrinsics, constants or {}, check_overflow=check_overflow
    )
    machine.run(func.name, args)


@dataclass
class Interpreter:
    """Interpreter of the functions of one module, compiled once for many runs.

    `lanes_max` 1 runs all loops sequentially, which checks the choice of parallel
    loops. Calls on other devices run when started or, with `deferred`, when waited for;
    both must give the same result.
    """

    functions: Mapping[str, tir.PrimFunc]
    intrinsics: IntrinsicTable
    constants: Mapping[str, Constant]
    _: KW_ONLY
    check_overflow: bool = True
    lanes_max: int = LANES_MAX
    deferred: bool = False
    _compiled: dict[tuple[str, _RootOffsets], Run] = field(
        default_factory=dict, init=False
    )

    def run(self, name: str, args: Mapping[str, Argument]) -> None:
        func = self.functions[name]
        names = {param.name for param in func.params}
        if names != set(args):
            what = f"parameters are {sorted(names)}, arguments {sorted(args)}"
            raise InternalError(what, where=f"@{name}")
        values: list[Value] = []
        for param in func.params:
            values.append(_make_argument(func, param, args[param.name]))
        with np.errstate(all="ignore"):
            self.call(name, values)

    def call(self, name: str, args: list[Value]) -> None:
        """Run one function on pointers and ints in parameter order."""
        func = self.functions.get(name)
        if func is None:
            raise InternalError(f"the function {name} is not in the module")
        if len(args) != len(func.params):
            what = f"{len(func.params)} arguments expected"
            raise InternalError(what, where=f"@{name}")
        frame = CallFrame()
        pointers: list[tuple[tir.Param, Pointer]] = []
        for param, value in zip(func.params, args, strict=True):
            if isinstance(param.value, tir.Buffer):
                pointers.append((param, value))
                frame.views[param.name] = _parameter_view(func, param, value)
            else:
                frame.variables[param.name] = value
        places = _root_offsets(pointers)
        if (name, places) not in self._compiled:
            compiler = _StatementCompiler(self, func)
            self._compiled[name, places] = compiler.function(places)
        self._compiled[name, places](frame)


def _make_argument(func: tir.PrimFunc, param: tir.Param, value: Argument) -> Value:
    where = f"@{func.name}, parameter {param.name}"
    if isinstance(param.value, tir.Buffer):
        if not isinstance(value, np.ndarray):
            raise InternalError("an array is expected", where=where)
        writable = param.role not in ("in", "const")
        return runtime.make_pointer(value, param.value.dtype, where, writable=writable)
    if isinstance(value, np.ndarray):
        raise InternalError("a number is expected", where=where)
    return value


def _parameter_view(func: tir.PrimFunc, param: tir.Param, pointer: Pointer) -> View:
    where = f"@{func.name}, parameter {param.name}"
    buffer = param.value
    assert isinstance(buffer, tir.Buffer)
    need = buffer.span_elements * buffer.dtype.size_bytes
    if pointer.extent_bytes < need:
        what = f"needs {need} bytes, gets {pointer.extent_bytes}"
        raise InternalError(what, where=where)
    writes = param.role not in ("in", "const")
    if writes and not pointer.writable:
        raise InternalError("is written, but the argument is read-only", where=where)
    return View(buffer, replace(pointer, writable=writes))


def _root_offsets(pointers: list[tuple[tir.Param, Pointer]]) -> _RootOffsets:
    spans: list[tuple[int, int, str]] = []
    for param, pointer in pointers:
        spans.append((pointer.address, pointer.extent_bytes, param.name))
    places: list[tuple[str, str, int]] = []
    root, start, end = "", 0, -1
    for address, size, name in sorted(spans):
        if address >= end:
            root, start, end = name, address, address + size
        end = max(end, address + size)
        places.append((name, root, address - start))
    return tuple(sorted(places))


class _StatementCompiler:
    def __init__(self, program: Interpreter, func: tir.PrimFunc) -> None:
        self.program = program
        self.func = func
        self.exprs = ExprCompiler(
            func.name, func.span, program.intrinsics, program.check_overflow
        )

        self.scratch: dict[str, tir.Buffer] = {}

    def function(self, places: _RootOffsets) -> Run:
        roots = [root for _, root, _ in places]
        for param in self.func.params:
            if param.role != "scratch" or not isinstance(param.value, tir.Buffer):
                continue
            # Scratch that overlaps another argument is not private.
            is_root = (param.name, param.name, 0) in places
            if is_root and roots.count(param.name) == 1:
                self.scratch[param.name] = param.value
        addresses: dict[str, tuple[str, Affine]] = {}
        for name, root, offset in places:
            addresses[name] = (root, Affine({}, offset))
        return self.compile(self.func.body, LoopScope(addresses))

    def compile(self, node: tir.Stmt, scope: LoopScope) -> Run:
        match node:
            case tir.For():
                return self._for(node, scope)
            case tir.BufferStore(buffer, indices, value):
                new = self.exprs.compile(value, scope.bounds)
                store = self._store(buffer, indices, scope)
                return lambda frame: store(frame, new(frame))
            case tir.Let(var, value, body):
                bound = self.exprs.compile(value, scope.bounds)
                inner = self.compile(body, scope.inside(node))
                return _bind("variables", var.name, bound, inner)
            case tir.If():
                return self._if(node, scope)
            case tir.While():
                return self._while(node, scope)
            case tir.Seq(stmts):
                return _run_in_order([self.compile(stmt, scope) for stmt in stmts])
            case tir.Allocate(buffer, body, _):
                return self._allocate(buffer, self.compile(body, scope.inside(node)))
            case tir.AllocateConst(buffer, constant, body):
                inner = self.compile(body, scope.inside(node))
                return self._constant(buffer, constant, inner)
            case tir.DeclBuffer():
                return self._window(node, scope)
            case tir.Evaluate(call):
                return self._evaluate(call, scope)
            case tir.PrimFuncCall():
                return self._call(node, scope)

    def _for(self, node: tir.For, scope: LoopScope) -> Run:
        start = self.exprs.compile(node.start, scope.bounds)
        extent = self.exprs.compile(node.extent, scope.bounds)
        body = self.compile(node.body, scope.inside(node))
        loop = runtime.CompiledLoop(node.var.name, node.var.dtype, start, extent, body)
        table, own_bytes = self.program.intrinsics, private_bytes(node.body)
        if is_parallel(node, scope, table):
            return loop.run_in_lanes(self.program.lanes_max, own_bytes)
        roots: set[str] = set()
        for name in used_buffers(node.body):
            if name in scope.places:
                roots.add(scope.places[name][0])
        private = tuple(b for name, b in self.scratch.items() if name in roots)
        names = frozenset(buffer.name for buffer in private)
        if private and is_parallel(node, scope, table, names):
            return loop.run_speculatively(self.program.lanes_max, own_bytes, private)
        return loop.run_serially

    def _if(self, node: tir.If, scope: LoopScope) -> Run:
        cond = self.exprs.compile(node.cond, scope.bounds)
        then = self.compile(node.then, scope)
        orelse = None if node.orelse is None else self.compile(node.orelse, scope)

        def run(frame: CallFrame) -> None:
            holds = cond(frame)
            if not isinstance(holds, np.ndarray):
                if holds:
                    then(frame)
                elif orelse is not None:
                    orelse(frame)
                return
            runtime.run_masked(frame, holds, then)
            if orelse is not None:
                runtime.run_masked(frame, ~holds, orelse)

        return run

    def _while(self, node: tir.While, scope: LoopScope) -> Run:
        cond = self.exprs.compile(node.cond, scope.bounds)
        body = self.compile(node.body, scope)

        def run(frame: CallFrame) -> None:
            mask = frame.mask
            for _ in range(WHILE_STEPS_MAX):
                holds = cond(frame)
                if not runtime.is_any_active(holds, frame.mask):
                    frame.mask = mask
                    return
                if isinstance(holds, np.ndarray):
                    frame.mask = runtime.combine_masks(frame.mask, holds)
                body(frame)
            raise self.exprs.error(
                f"a while loop has not ended after {WHILE_STEPS_MAX} steps"
            )

        return run

    def _store(
        self, buffer: tir.Buffer, indices: tuple[Value, ...], scope: LoopScope
    ) -> Store:
        name = buffer.name
        if buffer.scope == "reg":
            number = self.exprs.register(buffer, indices, scope.bounds)
            kind = buffer.dtype.np

            def keep(frame: CallFrame, value: Value) -> None:
                registers, where = frame.registers[name], number(frame)
                old = registers[where]
                if frame.mask is not None and old is not None:
                    value = np.asarray(np.where(frame.mask, value, old), kind)
                registers[where] = value

            return keep
        position = self.exprs.position(buffer, indices, scope.bounds)

        def store(frame: CallFrame, value: Value) -> None:
            view = frame.views[name]
            if not view.writable:
                raise self.exprs.error(f"{name} is written, but is read-only")
            view.scatter(position(frame), value, frame.mask)

        return store

    def _allocate(self, buffer: tir.Buffer, body: Run) -> Run:
        name, count = buffer.name, buffer.elements
        if buffer.scope == "reg":
            return _bind("registers", name, lambda frame: [None] * count, body)

        def allocate(frame: CallFrame) -> View:
            memory = runtime.allocate_undefined(buffer, frame.lanes, frame.shape)
            return View(buffer, memory)

        return _bind("views", name, allocate, body)

    def _constant(self, buffer: tir.Buffer, name: str, body: Run) -> Run:
        constant = self.program.constants.get(name)
        if constant is None:
            raise self.exprs.error(f"the constant {name} is not in the table")
        if constant.dtype != buffer.dtype or constant.size_bytes < buffer.size_bytes:
            raise self.exprs.error(
                f"the constant {name} does not match the declaration of {buffer.name}"
            )
        storage = np.frombuffer(constant.data, np.uint8)
        view = View(buffer, Pointer(storage, 0, len(storage), False))
        return _bind("views", buffer.name, lambda frame: view, body)

    def _window(self, node: tir.DeclBuffer, scope: LoopScope) -> Run:
        buffer = node.buffer
        need = buffer.span_elements * buffer.dtype.size_bytes
        have = node.source.extent * node.source.buffer.dtype.size_bytes
        if need > have:
            raise self.exprs.error(
                f"the view {buffer.name} needs {need} bytes of {have}"
            )
        source = self.exprs.pointer(node.source, scope.bounds)
        body = self.compile(node.body, scope.inside(node))

        def view(frame: CallFrame) -> View:
            return runtime.make_view(buffer, source(frame))

        return _bind("views", buffer.name, view, body)

    def _evaluate(self, call: tir.IntrinsicCall, scope: LoopScope) -> Run:
        intrinsic = self.exprs.intrinsic(call.name, call.args)
        inputs: list[Eval] = []
        outputs: list[Store] = []
        for operand, arg in zip(intrinsic.operands, call.args, strict=True):
            if operand.kind != "out":
                value = self.exprs.compile(arg, scope.bounds)
                inputs.append(self.exprs.operand(operand.kind, operand.dtype, value))
            if operand.kind == "ptr" and "w" in operand.access:
                pointer = self.exprs.compile(arg, scope.bounds)
                where = f"{call.name}: {operand.name}"
                outputs.append(partial(_store_elements, pointer, operand.dtype, where))
            elif operand.kind in ("out", "inout"):
                if not isinstance(arg, tir.BufferLoad):
                    raise self.exprs.error(
                        f"operand {operand.name} of {call.name} is not a register"
                    )
                outputs.append(self._result_store(arg, call.name, scope))

        is_plugin, label = bool(intrinsic.symbol), f"the numpy meaning of {call.name}"

        def run(frame: CallFrame) -> None:
            values = [value(frame) for value in inputs]
            with plugin_call(label) if is_plugin else nullcontext():
                answer = intrinsic.meaning(*values)
            results = answer if isinstance(answer, tuple) else (answer,)
            if outputs and len(results) != len(outputs):
                raise self.exprs.error(f"{call.name} returns {len(results)} results")
            for store, result in zip(outputs, results, strict=False):
                store(frame, result)

        return run

    def _result_store(self, arg: tir.BufferLoad, name: str, scope: LoopScope) -> Store:
        store = self._store(arg.buffer, arg.indices, scope)

        def convert_and_store(frame: CallFrame, value: Value) -> None:
            store(frame, self.exprs.result(np.asarray(value), arg.dtype, frame, name))

        return convert_and_store

    def _call(self, node: tir.PrimFuncCall, scope: LoopScope) -> Run:
        args = [self.exprs.compile(arg, scope.bounds) for arg in node.args]
        if node.phase == ("start" if self.program.deferred else "wait"):
            return _run_in_order([])

        def run(frame: CallFrame) -> None:
            if frame.shape:
                raise self.exprs.error(f"{node.callee} is called from lanes")
            self.program.call(node.callee, [arg(frame) for arg in args])

        return run


def _store_elements(
    pointer: Eval, dtype: DType, where: str, frame: CallFrame, value: Value
) -> None:
    """Store a result in the shape of the elements, or with as many elements."""
    view, indices = runtime.elements_at(pointer(frame), dtype, len(frame.shape))
    values = np.asarray(value, dtype.np)
    if not frame.shape and values.size > 1:
        if values.size != indices.size:
            sizes = f"{values.size} elements of {indices.size}"
            raise PluginError(f"the numpy meaning returns {sizes}.", where=where)
        values = values.reshape(indices.shape)
    view.scatter(indices, values, frame.mask)


def _bind(
    table: Literal["variables", "views", "registers"], name: str, value: Eval, body: Run
) -> Run:

    def run(frame: CallFrame) -> None:
        getattr(frame, table)[name] = value(frame)
        body(frame)

    return run


def _run_in_order(stmts: list[Run]) -> Run:
    def run(frame: CallFrame) -> None:
        for stmt in stmts:
            stmt(frame)

    return run
