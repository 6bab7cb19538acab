"""The samples of a case in order, with what an operator keeps from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Kept:
    """An input of a call that is state, the output that it becomes, and its first value."""

    source: int
    result: int
    initial: Array


def kept_by(module: IRModule) -> list[Kept]:
    """What the only call of `module` keeps."""
    main = module.entry
    assert isinstance(main, Function)
    (call,) = main.body
    sources = ["" if value is None else value.name for value in call.inputs]
    results = [value.name for value in call.outputs]
    return [
        Kept(
            sources.index(state.value.name),
            results.index(state.next.name),
            module.constants[state.initial].array(),
        )
        for state in main.state
    ]


def full_inputs(call: OpCall, given: Sequence[Array], state: dict[int, Array]) -> list[Array]:
    """Arrays for all inputs of `call`: constants, state, and `given` in order for the others."""
    if not call.inputs:  # only the shapes of the case's inputs matter
        return []
    rest = iter(given)
    arrays: list[Array] = []
    for index, kind in enumerate(call.inputs):
        constant = call.constant(index)
        if index in state:
            arrays.append(state[index])
        elif kind is not None:
            arrays.append(next(rest) if constant is None else constant.array())
    assert next(rest, None) is None
    return arrays


def in_order(
    call: OpCall, kept: Sequence[Kept], samples: Sequence[Sequence[Array]]
) -> Iterator[tuple[list[Array], tuple[Array, ...]]]:
    """For each sample all inputs and what the reference gives, state included."""
    state = {one.source: one.initial for one in kept}
    for given in samples:
        arrays = full_inputs(call, given, state)
        results = op_table()[call.op].reference(call, arrays)
        yield arrays, results
        state = {one.source: np.ascontiguousarray(results[one.result]) for one in kept}
