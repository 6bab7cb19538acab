"""float16 in .tflite files: LiteRT's conversions, in C; other operators refuse it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import UnsupportedError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.oracle.reference_runner import RuntimeName, run_reference
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import ModelFile

Array = NDArray[Any]
WIDE = ("float32", "float64")
WHOLE = ("int8", "uint8", "int16", "int32", "uint32", "int64", "bool")
SPECIAL = (np.inf, -np.inf, np.nan)
HALVES = np.array(
    [*(0, -0.0, 1, -1, 1.5, -2.5, 300.25, 65504, -65504, 2**-24, 0.1, 9), *SPECIAL],
    np.float16,
)
TIES = (65519.9, 65520, 2**-25, 3 * 2**-25, 1 + 2**-11 + 2**-40)
REALS = np.array([0, -0.0, 0.1, 65504, -1e6, 1.5, -2.5, *TIES, *SPECIAL])
EDGES = (2049, 2051, 65519, 65520, 100000, -100000, 2**31 - 1, -(2**31))
INTEGERS = np.array([0, 1, -1, 127, -128, 255, 3, *EDGES])
KERNELS: tuple[RuntimeName, ...] = ("litert", "litert-optimized")


def conversions() -> tuple[bytes, dict[str, Array]]:
    """Return a model of conversions from and to float16, with its inputs."""
    file = ModelFile()
    main = file.graph("main")
    shape = (len(HALVES),)
    half = main.input("half", "float16", shape)
    inputs: dict[str, Array] = {"half": HALVES}
    for dtype in (*WIDE, *WHOLE):
        made = main.tensor(f"to_{dtype}", dtype, shape)
        main.op("CAST", [half], [made])
        x = main.input(f"x_{dtype}", dtype, shape)
        narrow = main.tensor(f"from_{dtype}", "float16", shape)
        main.op("CAST", [x], [narrow])
        main.outputs(made, narrow)
        numbers = REALS if dtype in WIDE else INTEGERS
        inputs[f"x_{dtype}"] = numbers.astype(dtype)
    dequantized = main.tensor("dequantized", "float32", shape)
    main.op("DEQUANTIZE", [half], [dequantized], "DequantizeOptions")
    copied = main.tensor("copied", "float16", shape)
    main.op("CAST", [half], [copied])
    main.outputs(dequantized, copied)
    return file.data(), inputs


def check_conversions(board: str) -> None:
    data, inputs = conversions()
    module = load_module_bytes(data, "conversions.tflite")
    compiled = compile_for(module, board=board)
    with open_session(compiled, in_process=board == "host") as session:
        (found,) = session.run_all([inputs])
    for kernels in KERNELS:
        (expected,) = run_reference(data, [inputs], kernels).outputs
        assert set(found) == set(expected)
        for name, y in expected.items():
            np.testing.assert_array_equal(found[name], y, strict=True, err_msg=name)


@pytest.mark.host_c
def test_conversions_equal_litert() -> None:
    check_conversions("host")


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547", "microbit"])
def test_conversions_on_a_board_equal_litert(board: str) -> None:
    check_conversions(board)


def test_constants_of_float16_are_converted_at_compile_time() -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "float32", (3,))
    halves = main.constant("halves", np.array([1.5, -65504, 2**-24], np.float16))
    numbers = main.tensor("numbers", "float32", (3,))
    main.op("CAST", [halves], [numbers])
    y = main.tensor("y", "float32", (3,))
    main.op("ADD", [x, numbers], [y], "AddOptions")
    main.outputs(y)
    module = load_module_bytes(file.data(), "constants.tflite")
    (call,) = module.entry_graph.body
    assert call.op == "add"
    _, added = call.inputs
    assert added is not None
    assert added.constant is not None
    assert module.constants[added.constant].array().tolist() == [1.5, -65504, 2**-24]


@pytest.mark.parametrize("op", ["ABS", "LOGISTIC", "RELU", "NEG"])
def test_other_operators_refuse_float16_by_name(op: str) -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "float16", (4,))
    y = main.tensor("y", "float16", (4,))
    main.op(op, [x], [y])
    main.outputs(y)
    with pytest.raises(UnsupportedError) as caught:
        load_module_bytes(file.data(), "halves.tflite")
    (item,) = caught.value.items
    assert item.op == op
    assert item.why.startswith("element type float16; float16 activations: ")
