"""Evaluation of graph functions on the host with the numpy reference of each operator.

This is a second reference besides LiteRT, and the only one for graphs that call
PrimFuncs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import ModelError, NotSupportedError
from firmwright.base.resource_limits import EVALUATED_CALLS_MAX, WorkBudget
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.control import IfAttrs, WhileAttrs
from firmwright.ir.graph.nodes import CONTROL_FLOW_OPS, Call, Function, Value
from firmwright.ir.graph.op_call import MeaningTable, OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.intrinsic import IntrinsicTable


def evaluate_graph(
    module: IRModule,
    inputs: Mapping[str, Array],
    ops: MeaningTable,
    intrinsics: IntrinsicTable,
    state: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Return every value of the entry function by name, inputs included.

    `state` is the state by value name, as returned by `initial_state` or `next_state`.
    Raises ModelError if an input is missing.
    """
    entry = module.entry_graph
    values: dict[str, Array] = dict(initial_state(module) if state is None else state)
    for param in entry.params:
        if param.name not in inputs:
            raise ModelError(f"input {param.name} is missing.", where=module.name)
        values[param.name] = np.asarray(inputs[param.name])
    with np.errstate(all="ignore"):  # infinity and NaN are values among floats
        try:
            _Evaluator(module, ops, intrinsics).run_calls(entry, values)
        except NotSupportedError as error:
            raise ModelError(f"it has {error}.", where=module.name) from error
    return values


def _work_budget() -> WorkBudget:
    return WorkBudget(EVALUATED_CALLS_MAX, "loops that take more than {} operators")


@dataclass(frozen=True, slots=True)
class _Evaluator:
    module: IRModule
    ops: MeaningTable
    intrinsics: IntrinsicTable
    work: WorkBudget = field(default_factory=_work_budget)

    def run_calls(self, function: Function, values: dict[str, Array]) -> None:
        self.work.spend(1 + len(function.body))
        for call in function.body:
            arrays = call_arrays(self.module, call, values)
            callee = self.module.callee(call.op)
            if isinstance(callee, Function):
                results = self.run_graph(callee, arrays)
            elif call.op.startswith("@"):
                results = self.run_prim(call, arrays)
            elif call.op in CONTROL_FLOW_OPS:
                results = self.run_control(call, arrays)
            else:
                reference = self.ops[call.op].reference
                results = reference(make_op_call(call, self.module), arrays)
            for value, result in zip(call.outputs, results, strict=True):
                values[value.name] = result

    def run_graph(self, function: Function, args: Sequence[Array]) -> tuple[Array, ...]:
        names = (param.name for param in function.params)
        values = dict(zip(names, args, strict=True))
        self.run_calls(function, values)
        return tuple(_array(self.module, value, values) for value in function.results)

    def run_control(self, call: Call, arrays: list[Array]) -> tuple[Array, ...]:
        def run(name: str, args: Sequence[Array]) -> tuple[Array, ...]:
            function = self.module.functions[name]
            assert isinstance(function, Function)
            return self.run_graph(function, args)

        if isinstance(call.attrs, IfAttrs):
            branch = call.attrs.then if arrays[0].item() else call.attrs.else_
            return run(branch, arrays[1:])
        loop, carried = call.attributes(WhileAttrs), tuple(arrays)
        while run(loop.cond, carried)[0].item():
            carried = run(loop.body, carried)
        return carried

    def run_prim(self, call: Call, arrays: list[Array]) -> tuple[Array, ...]:
        functions: dict[str, tir.PrimFunc] = {}
        for name, function in self.module.functions.items():
            if isinstance(function, tir.PrimFunc):
                functions[name] = function
        func = functions.get(call.op[1:])
        if func is None:
            raise ModelError(f"{call.op} is not a PrimFunc.", where=str(call.span))
        outputs = tuple(np.zeros(v.type.shape, v.type.dtype.np) for v in call.outputs)
        names = (param.name for param in func.params)
        args = dict(zip(names, (*map(np.copy, arrays), *outputs), strict=True))
        interpret(func, args, self.intrinsics, functions, self.module.constants)
        return outputs


def initial_state(module: IRModule) -> dict[str, Array]:
    state = module.entry.state if isinstance(module.entry, Function) else ()
    return {one.value.name: module.constants[one.initial].array() for one in state}


def next_state(module: IRModule, values: Mapping[str, Array]) -> dict[str, Array]:
    state = module.entry.state if isinstance(module.entry, Function) else ()
    return {one.value.name: _array(module, one.next, values) for one in state}


def numerics_of(module: IRModule) -> NumericsProfile:
    return module.settings.profile


def make_op_call(call: Call, module: IRModule) -> OpCall:
    constants: list[Constant | None] = []
    for value in call.inputs:
        name = None if value is None else value.constant
        constants.append(module.constants.get(name) if name else None)
    values = (*call.inputs, *call.outputs)
    scopes = tuple("" if v is None else v.virtual_device.memory_scope for v in values)
    return OpCall(
        op=call.op,
        inputs=tuple(None if value is None else value.type for value in call.inputs),
        outputs=tuple(value.type for value in call.outputs),
        attrs=call.attrs,
        constants=tuple(constants),
        numerics=numerics_of(module),
        scopes=scopes if any(scopes) else (),
        any_weights=module.settings.weight_independent,
        all_channels=module.settings.all_channels,
        no_nan=module.settings.no_nan,
    )


def call_arrays(
    module: IRModule, call: Call, values: Mapping[str, Array]
) -> list[Array]:
    """Return the operands of a call; one that is absent is empty."""
    return [_array(module, value, values) for value in call.inputs]


def _array(module: IRModule, value: Value | None, values: Mapping[str, Array]) -> Array:
    if value is None:
        return np.zeros(0)
    if value.constant:
        return np.asarray(module.constants[value.constant].array())
    return values[value.name]
