"""float64 and uint64 have the results of ONNX Runtime, also beyond float32 and int64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.ir.module import IRModule
from onnx import TensorProto, helper
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Array, Net
from tests.onnx.test_nets import imported, optimized, results

RNG = np.random.Generator(np.random.PCG64(64))
WIDE = np.array([1 + 1e-12, -1e-300, 1e300, 3.5, -2.5, 0.1, 123456789.123, -0.75])
"""Numbers that float32 does not hold."""
UNSIGNED = np.array([0, 1, 7, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1, 2**40 + 3], "u8")
FLOATS = np.concatenate(
    [
        [0.0, -0.9, 1.5, -1.5, 127.9, 255.0, 300.0, -200.0, 1e-300, -3e9],
        np.exp2([31.0, 53.0, 62.0]) + 2,
        -np.exp2([31.0, 63.0]),
    ]
)
RELATIVE, ABSOLUTE = 1e-12, 1e-13
"""The libraries differ in the last bits, and sums in their order."""


@dataclass(frozen=True)
class Case:
    """A node with inputs; the last `constants` are constants of the model."""

    op: str
    inputs: tuple[Array, ...]
    constants: int
    attrs: Mapping[str, Any]
    outputs: int = 1

    def model(self) -> bytes:
        net = Net(opset=20)
        names: list[str] = []
        for k, array in enumerate(self.inputs):
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            if k < len(self.inputs) - self.constants:
                names.append(net.input(f"x{k}", array.shape, kind))
            else:
                names.append(net.weight(array))
        y = net.node(self.op, *names, outputs=self.outputs, **self.attrs)
        return net.model(*([y] if self.outputs == 1 else y))

    @property
    def sample(self) -> dict[str, Array]:
        variable = self.inputs[: len(self.inputs) - self.constants]
        return {f"x{k}": array for k, array in enumerate(variable)}


def _case(
    op: str, *inputs: Array, constants: int = 0, outputs: int = 1, **attrs: Any
) -> Case:
    return Case(op, inputs, constants, attrs, outputs)


def _doubles(*shape: int) -> Array:
    return RNG.normal(size=shape)


def _float64_cases() -> Iterator[Case]:
    for op in ("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Reciprocal", "Relu"):
        yield _case(op, WIDE)
    for op in ("Sin", "Cos", "Exp", "Tanh", "Sigmoid"):
        yield _case(op, np.clip(WIDE, -5, 5))
    for op in ("Sqrt", "Log"):
        yield _case(op, np.abs(WIDE))
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "GreaterOrEqual"):
        yield _case(op, WIDE, WIDE[::-1].copy())
    special = np.array([np.nan, 1.0, np.nan, -np.inf, 2.0])
    yield _case("Relu", special)
    for op in ("Max", "Min"):
        yield _case(op, special, special[::-1].copy())
        yield _case(op, special, np.array(1.5), constants=1)
    yield _case("Clip", special, np.array(0.0), np.array(1.5), constants=2)
    yield _case("Pow", np.abs(WIDE[3:]), np.array([1.7]), constants=1)
    yield _case("Mod", WIDE[3:], np.array([0.3]), fmod=1)
    yield _case("Clip", WIDE, np.array(-1.0), np.array(0.1), constants=2)
    yield _case("Where", WIDE > 0, WIDE, WIDE * 2)
    yield _case("IsNaN", np.array([np.nan, 1.0, np.inf]))
    yield _case("MatMul", _doubles(3, 5), _doubles(5, 4), constants=1)
    yield _case("MatMul", _doubles(2, 3, 5), _doubles(2, 5, 4))
    yield _case("Gemm", _doubles(3, 5), _doubles(4, 5), _doubles(4), transB=1)
    weights = _doubles(4, 5), _doubles(4)
    yield _case(
        "Gemm", _doubles(3, 5), *weights, constants=2, transB=1, alpha=0.5, beta=1.5
    )
    yield _case("Softmax", _doubles(3, 7), axis=1)
    yield _case("LogSoftmax", _doubles(3, 7), axis=1)
    yield _case("LayerNormalization", _doubles(3, 7), _doubles(7), _doubles(7))
    vectors = _doubles(2), _doubles(2), _doubles(2), np.abs(_doubles(2))
    yield _case("BatchNormalization", _doubles(1, 2, 5), *vectors, constants=4)
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        yield _case(op, _doubles(3, 7), np.array([1]), constants=1)
    yield _case("ArgMax", _doubles(3, 7), axis=1)
    yield _case("TopK", _doubles(3, 7), np.array([2]), constants=1, outputs=2)
    yield _case("CumSum", _doubles(3, 7), np.array(1), constants=1)
    yield _case("MaxPool", _doubles(1, 2, 6), kernel_shape=[3], pads=[1, 1])
    yield _case("Pad", WIDE, np.array([1, 2]), np.array(0.1), constants=2)
    yield _case("Concat", WIDE, _doubles(3), axis=0)
    yield _case("Gather", WIDE, np.array([3, 0, 7]))
    yield _case("Transpose", _doubles(3, 7))
    yield _case("Einsum", _doubles(3, 5), _doubles(5, 2), equation="ij,jk->ki")


def _uint64_cases() -> Iterator[Case]:
    other = np.roll(UNSIGNED, 3)
    for op in ("Add", "Sub", "Mul", "Max", "Min", "Less", "Greater", "Equal"):
        yield _case(op, UNSIGNED, other)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield _case(op, UNSIGNED, other)
    yield _case("Div", UNSIGNED, np.maximum(other, 1))
    yield _case("Mod", UNSIGNED, np.maximum(other, 1))
    shifts = np.arange(1, 65, 9).astype("u8")[:8]
    yield _case("BitShift", UNSIGNED, shifts[: len(UNSIGNED)], direction="LEFT")
    yield _case("BitShift", UNSIGNED, shifts[: len(UNSIGNED)], direction="RIGHT")
    yield _case("BitwiseNot", UNSIGNED)
    yield _case("Gather", UNSIGNED, np.array([6, 0]))


def _cast_cases() -> Iterator[Case]:
    kinds = ("int8", "uint8", "int16", "int32", "int64", "uint32", "float32")
    for name in (*kinds, "float64", "uint64"):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(name))
        limits = np.iinfo(name) if np.dtype(name).kind in "iu" else None
        fitting = FLOATS
        if limits is not None and not limits.min:
            fitting = FLOATS[(FLOATS > -1) & (limits.max >= FLOATS)]
        yield _case("Cast", fitting, to=code)
        yield _case("Cast", UNSIGNED, to=code)
        values = [limits.min, limits.max, 1] if limits else [0.5, 1e30, -2]
        source = np.array(values, name)
        yield _case("Cast", source, to=TensorProto.DOUBLE)
        if limits is not None:
            yield _case("Cast", source, to=TensorProto.UINT64)
    yield _case("Cast", WIDE, to=TensorProto.BOOL)
    yield _case("Cast", np.array([True, False]), to=TensorProto.DOUBLE)
    yield _case("Cast", np.array([1e19, 2.0**63, 3.7], "f4"), to=TensorProto.UINT64)


def _cases_with_nan() -> Iterator[Case]:
    x, y = np.array([[1, np.nan, 2, np.nan], [np.nan, 3, -1, np.nan]])
    for op in ("Max", "Min"):
        yield _case(op, x, y)
        yield _case(op, x, y, constants=1)


CASES = (*_float64_cases(), *_uint64_cases(), *_cast_cases(), *_cases_with_nan())


def _expected(data: bytes, sample: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(data, options)
    return list(session.run(None, dict(sample)))


def _check(values: list[Array], wanted: list[Array]) -> None:
    for got, want in zip(values, wanted, strict=True):
        assert got.dtype == want.dtype
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=RELATIVE, atol=ABSOLUTE)
        else:
            np.testing.assert_array_equal(got, want)


def _modules() -> list[IRModule]:
    return [imported(case.model()) for case in CASES]


def test_the_references_are_those_of_onnx_runtime() -> None:
    for case in CASES:
        module = imported(case.model())
        wanted = _expected(case.model(), case.sample)
        _check(list(results(module, case.sample).values()), wanted)
        _check(list(results(optimized(module), case.sample).values()), wanted)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_are_rounded_to_integers_of_four_bits(kind: int, source: str) -> None:
    """A double next to a half is not rounded to the half first."""
    values = [1.5, -2.5, 3.7, 2.4999999999, 0.49999999999999994, -1e300, 3e9]
    with np.errstate(over="ignore"):
        x = np.array([*values, np.inf, np.nan, 17.5]).astype(source)
    net = Net(opset=21)
    net.input("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))
    narrow = net.node("Cast", "x", to=kind)
    data = net.model(net.node("Cast", narrow, to=TensorProto.INT32))
    (got,) = results(imported(data), {"x": x}).values()
    np.testing.assert_array_equal(got, _expected(data, {"x": x})[0])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (TensorProto.FLOAT16, TensorProto.UINT16),
        (TensorProto.INT16, TensorProto.BFLOAT16),
    ],
)
def test_the_bits_of_stored_floats_are_refused(source: int, target: int) -> None:
    """A conversion of the number would be another result."""
    net = Net(opset=26)
    data = net.model(net.node("BitCast", net.input("x", (3,), source), to=target))
    with pytest.raises(UnsupportedError, match="the bits of"):
        imported(data)


def _check_compiled(board: str) -> None:
    samples = [case.sample for case in CASES]
    (values,) = run_merged(_modules(), [samples], board)
    for number, case in enumerate(CASES):
        own = [x for name, x in values.items() if name.startswith(f"{number}.")]
        _check(own, _expected(case.model(), case.sample))


@pytest.mark.host_c
def test_the_generated_c_has_the_results_of_onnx_runtime() -> None:
    _check_compiled("host")


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "qemu-riscv32-virt", "microbit"])
def test_firmware_has_the_results_of_onnx_runtime(board: str) -> None:
    """Doubles are computed by the compiler's library there."""
    _check_compiled(board)
