"""Samples of a case in order, with the state that an operator carries between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table

Array = NDArray[np.generic]


@dataclass(frozen=True)
class StateInput:
    """A state input of a call, the output with its next value, its initial value."""

    source: int
    result: int
    initial: Array


def find_state(module: IRModule) -> list[StateInput]:
    """Return the state of the only call of `module`."""
    main = module.entry
    assert isinstance(main, Function)
    (call,) = main.body
    sources = ["" if value is None else value.name for value in call.inputs]
    results = [value.name for value in call.outputs]
    return [
        StateInput(
            sources.index(state.value.name),
            results.index(state.next.name),
            module.constants[state.initial].array(),
        )
        for state in main.state
    ]


def full_inputs(
    call: OpCall, given: Sequence[Array], state: dict[int, Array]
) -> list[Array]:
    """Return arrays for all inputs of `call`: constants, state, else `given`."""
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


def run_samples(
    call: OpCall, state_inputs: Sequence[StateInput], samples: Sequence[Sequence[Array]]
) -> Iterator[tuple[list[Array], tuple[Array, ...]]]:
    """Yield all inputs and the reference results of each sample, including state."""
    state = {item.source: item.initial for item in state_inputs}
    for given in samples:
        arrays = full_inputs(call, given, state)
        results = op_table()[call.op].reference(call, arrays)
        yield arrays, results
        state = {
            item.source: np.ascontiguousarray(results[item.result])
            for item in state_inputs
        }
