"""Scales from 2^-40 to 2^40 give ONNX Runtime's integers or are refused.

Parameters are scalars or vectors of one element, which ONNX Runtime treats differently;
operands may be one tensor twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import FirmwrightError, UnsupportedError
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from onnx import TensorProto
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results

Array = NDArray[Any]
SHAPE = (1, 4, 6, 6)
CASES, DEEP_CASES = 150, 6000
COMPARED_SHARE = 0.75
"""The least share of cases that ONNX Runtime computes and the importer accepts."""
UNARY: dict[str, dict[str, Any]] = {
    "AveragePool": {"kernel_shape": [2, 2]},
    "Clip": {},
    "Exp": {},
    "GlobalAveragePool": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.45},
    "LeakyRelu": {"alpha": 0.1},
    "LogSoftmax": {},
    "Relu": {},
    "Sigmoid": {},
    "Softmax": {},
    "Tanh": {},
    "requantize": {},
}
BINARY = ("Add", "Concat", "Div", "Mul", "Sub")
LAYERS = ("Conv", "Gemm", "MatMul")
QLINEAR = (
    "Add",
    "Mul",
    "Sigmoid",
    "LeakyRelu",
    "Softmax",
    "Concat",
    "GlobalAveragePool",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A model named in messages, with inputs x0 and maybe x1 of one integer type."""

    name: str
    model: bytes
    inputs: dict[str, Array]


@dataclass
class CaseMaker:
    """A quantized operator with random scales, forms of parameters and operands."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.kind = np.dtype(self.rng.choice(["int8", "uint8"]))
        self.vector = (1,) * int(self.rng.random() < 0.3)
        self.is_dyadic = self.rng.random() < 0.5
        self.net = Net(0)

    def scale(self, low: float = -40, high: float = 40) -> Array:
        exponent = self.rng.uniform(low, high)
        value = np.exp2(np.rint(exponent) if self.is_dyadic else exponent)
        return np.full(self.vector, value, np.float32)

    def near(self, scale: float) -> Array:
        """Return a scale near the given one, or sometimes any."""
        exponent = np.log2(scale)
        return (
            self.scale(exponent - 4, exponent + 4)
            if self.rng.random() < 0.7
            else self.scale()
        )

    def point(self) -> Array:
        limits = np.iinfo(self.kind.name)
        drawn = int(self.rng.integers(limits.min, limits.max + 1))
        return np.full(self.vector, self.rng.choice([drawn, limits.min]), self.kind)

    def parameters(self, scale: Array) -> list[str]:
        return [self.net.weight(scale), self.net.weight(self.point())]

    def operand(self, index: int, shape: tuple[int, ...]) -> str:
        kinds = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
        return self.net.input(f"x{index}", shape, kinds[self.kind.name])

    def case(self) -> Case:
        rng, net = self.rng, self.net
        op = str(rng.choice([*UNARY, *BINARY, *LAYERS]))
        shape = {"Gemm": (3, 6), "Softmax": (2, 3, int(rng.integers(2, 40)))}.get(
            op, SHAPE
        )
        # ONNX Runtime drops a Clip whose limits are within 2^-23 of the result's.
        x_scale = (
            self.scale(-12, 4) if op == "Clip" or rng.random() < 0.7 else self.scale()
        )
        first = self.operand(0, shape), self.parameters(x_scale)
        operands = [first]
        if op in BINARY:
            is_twice = rng.random() < 0.4
            other = self.parameters(self.near(float(x_scale.max())))
            operands.append(first if is_twice else (self.operand(1, shape), other))
        y_scale = self.near(self.natural_scale(op, float(x_scale.max())))
        is_integer = op in QLINEAR and rng.random() < 0.4
        y_parameters = self.parameters(y_scale)
        if is_integer:
            y = self.qlinear(op, operands, y_parameters)
        else:
            parameters = dict(operands)
            made = {
                x: net.node("DequantizeLinear", x, *parameters[x]) for x in parameters
            }
            reals = [made[x] for x, _ in operands]
            y = net.node(
                "QuantizeLinear", self.floats(op, reals, x_scale), *y_parameters
            )
        limits = np.iinfo(self.kind.name)
        inputs = {
            info.name: rng.integers(limits.min, limits.max + 1, shape).astype(self.kind)
            for info in net.inputs
        }
        form = "QLinear" if is_integer else "QDQ"
        name = f"{form} {op} {self.kind} {self.vector} x {x_scale.max():g} y {y_scale.max():g}"
        return Case(name, net.model(y), inputs)

    def natural_scale(self, op: str, x_scale: float) -> float:
        match op:
            case "Mul":
                return x_scale * x_scale * 100
            case "Div" | "HardSigmoid" | "Sigmoid" | "Softmax" | "Tanh":
                return 1 / 256
            case "Conv" | "Gemm" | "MatMul":
                return x_scale * 0.2
        return x_scale

    def floats(self, op: str, reals: list[str], x_scale: Array) -> str:
        net = self.net
        if op == "requantize":
            return reals[0]
        if op == "Concat":
            return str(net.node(op, *reals, axis=1))
        if op in LAYERS:
            return self.layer(op, reals[0], float(x_scale.max()))
        if op == "Clip":
            low, high = (net.scalar(n * float(x_scale.max())) for n in (-40.5, 61.2))
            return str(net.node(op, *reals, low, high))
        return str(net.node(op, *reals, **UNARY.get(op, {})))

    def layer(self, op: str, x: str, x_scale: float) -> str:
        net, rng = self.net, self.rng
        shape = (5, 4, 3, 3) if op == "Conv" else (6, 5)
        w_scale = np.exp2(np.rint(rng.uniform(-9, -5))) if self.is_dyadic else 0.0123
        if rng.random() < 0.2:
            w_scale = float(self.scale().max())
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        w_parameters = net.scalar(np.float32(w_scale)), net.scalar(np.int8(0))
        w = net.node("DequantizeLinear", net.weight(weights), *w_parameters)
        if op == "MatMul" or rng.random() < 0.3:
            return str(net.node(op, x, w))
        step = np.float32(x_scale) * np.float32(w_scale)
        bias = rng.integers(-2000, 2000, 5).astype(np.int32)
        b_parameters = net.scalar(step), net.scalar(np.int32(0))
        b = net.node("DequantizeLinear", net.weight(bias), *b_parameters)
        return str(net.node(op, x, w, b))

    def qlinear(
        self, op: str, operands: list[tuple[str, list[str]]], y_parameters: list[str]
    ) -> str:
        inputs = [name for x, parameters in operands for name in (x, *parameters)]
        attrs = {"axis": 1} if op == "Concat" else dict(UNARY.get(op, {}))
        if op == "Softmax":
            attrs = {"axis": -1, "opset": 13}
        ordered = (
            [*y_parameters, *inputs] if op == "Concat" else [*inputs, *y_parameters]
        )
        domain = {"domain": "com.microsoft"}
        return str(self.net.node(f"QLinear{op}", *ordered, **attrs, **domain))


def made(number: int) -> Case:
    return CaseMaker(np.random.Generator(np.random.PCG64([77, number]))).case()


def expected(case: Case) -> list[Array] | None:
    """Return ONNX Runtime's outputs; None if it refuses the model."""
    try:
        session = OnnxRuntimeSession(case.model, layers=False)
        return [
            np.asarray(y)
            for y in session.run([case.inputs[n] for n in session.input_names])
        ]
    except RuntimeError:
        return None


def accepted(case: Case) -> tuple[IRModule, Array] | None:
    """Return the module and its result; None if it is refused with a message."""
    try:
        module = imported(case.model)
        return module, next(iter(results(module, case.inputs).values()))
    except FirmwrightError as error:
        if error.exit_code != 2:
            raise
        return None


def test_operators_of_any_scale_equal_onnx_runtime_or_are_refused(deep: bool) -> None:
    counts: Counter[str] = Counter()
    different = []
    for number in range(DEEP_CASES if deep else CASES):
        case = made(number)
        own, outputs = accepted(case), expected(case)
        counts["tried"] += 1
        counts["no reference"] += outputs is None
        counts["refused"] += own is None
        if own is None or outputs is None:
            continue
        counts["compared"] += 1
        if not np.array_equal(own[1], outputs[0]):
            different.append((number, case.name))
    print(dict(counts), "differing", len(different))
    assert different == []
    assert counts["compared"] >= COMPARED_SHARE * counts["tried"]


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 400, 40))
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param("mps3-an547", marks=pytest.mark.qemu),
    ],
)
def test_firmware_of_any_scale_equals_onnx_runtime(board: str, first: int) -> None:
    cases = [made(number) for number in range(first, first + 40)]
    rows = [
        (case, own[0], outputs[0])
        for case in cases
        if (own := accepted(case)) is not None
        and (outputs := expected(case)) is not None
    ]
    modules = [module for _, module, _ in rows]
    (got,) = run_merged(modules, [[case.inputs for case, _, _ in rows]], board)
    for number, (case, module, output) in enumerate(rows):
        assert isinstance(module.entry, Function)
        own_result = got[f"{number}.{module.entry.results[0].name}"]
        np.testing.assert_array_equal(own_result, output, case.name)


DECIMALS = (
    (0.03, 0.011, 0.05),
    (0.05, 0.02, 0.06),
    (0.04, 0.05, 0.01),
    (4 / 255, 4 / 255, 32 / 255),
)


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("scales", DECIMALS)
def test_all_pairs_of_sums_and_products_equal_onnx_runtime(
    op: str, kind: str, scales: tuple[float, ...]
) -> None:
    net, element = Net(), {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}[kind]
    points = [net.scalar(np.dtype(kind).type(n)) for n in (3, 11, 1)]
    steps = [net.scalar(np.float32(scale)) for scale in scales]
    shapes = (256, 1), (1, 256)
    inputs = [net.input(f"x{k}", shape, element) for k, shape in enumerate(shapes)]
    rows = zip(inputs, steps, points, strict=False)
    reals = [net.node("DequantizeLinear", *operands) for operands in rows]
    model = net.model(
        net.node("QuantizeLinear", net.node(op, *reals), steps[2], points[2])
    )
    every = np.arange(256).astype(np.uint8).view(kind)
    feeds = {f"x{k}": every.reshape(shape) for k, shape in enumerate(shapes)}
    (reference,) = OnnxRuntimeSession(model, layers=False).run(list(feeds.values()))
    (own,) = results(imported(model), feeds).values()
    np.testing.assert_array_equal(own, reference)


@pytest.mark.parametrize("scale", [0.0005, 1 / 2000, 1 / 256, 0.004, 1.5, 2.0**-18])
def test_a_softmax_of_any_output_scale_equals_onnx_runtime(scale: float) -> None:
    net = Net()
    x = net.input("x", (64, 12), TensorProto.UINT8)
    real = net.node("DequantizeLinear", x, net.scalar(0.001), net.scalar(np.uint8(128)))
    target = net.scalar(scale), net.scalar(np.uint8(0))
    model = net.model(
        net.node("QuantizeLinear", net.node("Softmax", real, axis=-1), *target)
    )
    data = np.random.default_rng(4).integers(0, 256, (64, 12)).astype(np.uint8)
    (reference,) = OnnxRuntimeSession(model, layers=False).run([data])
    (own,) = results(imported(model), {"x": data}).values()
    np.testing.assert_array_equal(own, reference)


@pytest.mark.parametrize("scale", [2.0**-36, 2.0**-18, 1e-5, 1 / 256])
@pytest.mark.parametrize("op", ["Sigmoid", "Tanh"])
def test_a_table_of_any_output_scale_equals_onnx_runtime(op: str, scale: float) -> None:
    """ONNX Runtime's polynomials decide results near the middle of two steps."""
    net = Net()
    x = net.input("x", (1, 256), TensorProto.INT8)
    real = net.node("DequantizeLinear", x, net.scalar(0.0625), net.scalar(np.int8(44)))
    target = net.scalar(scale), net.scalar(np.int8(-94))
    model = net.model(net.node("QuantizeLinear", net.node(op, real), *target))
    data = np.arange(-128, 128).astype(np.int8).reshape(1, 256)
    (reference,) = OnnxRuntimeSession(model, layers=False).run([data])
    (own,) = results(imported(model), {"x": data}).values()
    np.testing.assert_array_equal(own, reference)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("Softmax", "larger output scale"),
        ("Add", "depend on the CPU"),
        ("Gemm", "beyond 32 bits"),
    ],
)
def test_scales_without_exact_integers_are_refused(op: str, reason: str) -> None:
    net = Net()
    tiny, zero = net.scalar(np.float32(2.0**-36)), net.scalar(np.int8(0))
    x = net.input("x", (2, 6), TensorProto.INT8)
    real = net.node(
        "DequantizeLinear", x, tiny if op == "Gemm" else net.scalar(1.0), zero
    )
    operands = [real]
    if op == "Add":
        operands.append(real)
    if op == "Gemm":
        weights = net.weight(np.full((6, 3), 9, np.int8))
        operands.append(net.node("DequantizeLinear", weights, net.scalar(0.01), zero))
        operands.append(net.weight(np.full(3, 1.5, np.float32)))
    target = net.scalar(0.1) if op == "Gemm" else tiny
    model = net.model(net.node("QuantizeLinear", net.node(op, *operands), target, zero))
    with pytest.raises(UnsupportedError, match=reason):
        imported(model)


@pytest.mark.host_c
def test_a_layer_with_a_tiny_output_scale_saturates_in_c_as_in_onnx_runtime() -> None:
    net = Net()
    x = net.input("x", (2, 6), TensorProto.INT8)
    scale, zero = net.scalar(1.0), net.scalar(np.int8(0))
    weights = net.weight(np.arange(-9, 9).reshape(6, 3).astype(np.int8))
    reals = [net.node("DequantizeLinear", item, scale, zero) for item in (x, weights)]
    target = net.scalar(2.0**-24), zero
    model = net.model(net.node("QuantizeLinear", net.node("MatMul", *reals), *target))
    data = np.array([[0] * 6, [100, -90, 80, 70, -60, 127]], np.int8)
    (reference,) = OnnxRuntimeSession(model, layers=False).run([data])
    (got,) = run_merged([imported(model)], [[{"x": data}]], "host")
    np.testing.assert_array_equal(next(iter(got.values())), reference)
