"""Chains of operators on conformance cases: of patterns, and readers of results."""

from collections.abc import Callable
from dataclasses import replace

from firmwright.base.dtypes import BOOL
from firmwright.base.errors import FirmwrightError, NotSupportedError
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.patterns import AlternativesPattern, OpPattern, Pattern
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.partitioning.target_resolution import CORE_TARGET_NAME

OperatorChain = tuple[OpPattern, ...]


def operator_chains(pattern: Pattern) -> list[OperatorChain]:
    """Return a pattern's operator chains, first operator first; [] if it branches."""
    match pattern:
        case AlternativesPattern(choices=choices):
            chains: list[OperatorChain] = []
            for choice in choices:
                chains += operator_chains(choice)
            return chains
        case OpPattern(inputs=inputs):
            of_inputs = [operator_chains(part) for part in inputs or ()]
            below = [chains for chains in of_inputs if chains]
            if not below:
                return [(pattern,)]
            if len(below) > 1:
                return []
            return [(*chain, pattern) for chain in below[0]]
        case _:
            return []


def append_operators(module: IRModule, following: OperatorChain) -> IRModule:
    """Return the module with a chain's operators after each call where they apply."""

    def more(value: Value) -> list[Call]:
        return _following_calls(value, following, module)

    return _with_calls_after_each(module, more) if following else module


def append_readers(module: IRModule) -> IRModule:
    """Return the module with a call on the core that reads each result at once.

    Its result, which takes the place of the other, is the same value.
    """

    def reader(value: Value) -> list[Call]:
        is_bool = value.type.dtype == BOOL
        name = "logical_or" if is_bool else "maximum"
        if value.type.dtype.name not in op_table()[name].dtypes:
            return []
        result = replace(value, name=f"{value.name.split('.')[0]}.r0")
        own = attrs_from_mapping(name, {})
        return [Call(name, (value, value), (result,), own, target=CORE_TARGET_NAME)]

    return _with_calls_after_each(module, reader)


def _with_calls_after_each(
    module: IRModule, calls_after: Callable[[Value], list[Call]]
) -> IRModule:
    """Return the module with calls after each call, on its first output."""
    main = module.entry
    if not isinstance(main, Function):
        return module
    last_of: dict[str, Value] = {value.name: value for value in main.results}
    body: list[Call] = []
    for call in main.body:
        body.append(call)
        last = call.outputs[0]
        more = calls_after(last) if last.name in last_of else []
        if more:
            body += more
            last_of[last.name] = more[-1].outputs[0]
    main = replace(main, body=tuple(body), results=tuple(last_of.values()))
    return module.with_function(main)


def _following_calls(
    value: Value, following: OperatorChain, module: IRModule
) -> list[Call]:
    """Return calls of the operators on `value`; [] if one fails or changes shapes."""
    calls: list[Call] = []
    for number, part in enumerate(following):
        stem = value.name.split(".")[0]
        result = replace(value, name=f"{stem}.c{number}")
        attrs: dict[str, int | str] = {}
        for name, want in part.attrs.items():
            if isinstance(want, int | str):
                attrs[name] = want
        try:
            own = attrs_from_mapping(part.op, attrs)
            call = Call(part.op, (value,), (result,), own)
            inferred = op_table()[part.op].infer(make_op_call(call, module))
        except (FirmwrightError, NotSupportedError, KeyError, IndexError):
            return []
        if [kind.shape for kind in inferred] != [value.type.shape]:
            return []
        calls.append(call)
        value = result
    return calls
