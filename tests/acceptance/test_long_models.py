"""Models of many operators: nothing in the compiler is as deep as Python's stack."""

import numpy as np

from firmwright.base.dtypes import INT32
from firmwright.flows.samples.reference_outputs import (
    run_interpreter,
    run_numpy_reference,
)
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.pipeline import Options, compile_model, load_module_bytes

OPERATORS = 450


def test_chain_of_hundreds_of_operators_compiles() -> None:
    kind = TensorType((1, 3), INT32)
    values = [Value(f"v{number}", kind) for number in range(OPERATORS + 1)]
    body = tuple(
        Call("neg" if number % 3 else "abs", (values[number],), (values[number + 1],))
        for number in range(OPERATORS)
    )
    entry = Function("main", (values[0],), body, (values[-1],))
    module = IRModule("chain", {"main": entry}, {}, entry_name="main")
    planned = compile_model(module, Options()).module
    again = load_module_bytes(print_module(planned).encode(), "chain.fwir")
    assert again.plan == planned.plan
    sample = {"v0": np.array([[-5, 0, 7]], np.int32)}
    last = values[-1].name
    (expected,), (found,) = (
        run_numpy_reference(module, [sample]).outputs,
        run_interpreter(again, [sample]).outputs,
    )
    np.testing.assert_array_equal(found[last], expected[last])
