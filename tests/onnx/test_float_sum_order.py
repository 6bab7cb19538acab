"""Integer ReduceMean and ReduceSum equal ONNX Runtime's ordered float32 sums."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes.values import AxesAttrs
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.float_sum_order import SumOrder, TieTest, float_sums
from firmwright.oracle.reference_runner import run_reference
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from onnx import TensorProto
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import imported, results
from tests.onnx.test_onnx_runtime_integers import inputs_of, merged

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((37,), (0,)),
    ((3,), (0,)),
    ((6, 24), (1,)),
    ((5, 13), (1,)),
    ((7, 3), (1,)),
    ((9, 7), (0,)),
    ((3, 11, 5), (1,)),
    ((2, 6, 3), (1,)),
    ((1, 11, 5), (1,)),
    ((3, 4, 13), (0, 2)),
    ((3, 1, 13), (0, 2)),
    ((5, 2, 3), (0, 2)),
    ((1, 4, 6, 5), (2, 3)),
    ((2, 4, 6, 5), (1, 3)),
    ((2, 4, 7, 3), (1, 2)),
    ((3, 2, 4, 5), (0, 2)),
    ((2, 3, 4, 2, 3), (0, 2, 4)),
]
DEEP_GRAPHS = 400
UNIT = Quantization((1.0,), (0,))


def reduced(seed: int) -> bytes:
    """Return a model of one reduction; many sums are ties."""
    net, rng = Net(seed, opset=18), np.random.Generator(np.random.PCG64(seed))
    shape, axes = SHAPES[seed % len(SHAPES)]
    kind, step = ("uint8", "int8")[seed % 2], np.float32(rng.uniform(0.01, 0.06))

    def tensor(x: str, scale: np.float32) -> str:
        limits = np.iinfo(kind)
        point = np.array(rng.integers(limits.min, limits.max + 1), kind)
        operands = net.weight(np.array(scale)), net.weight(point)
        x = net.node("QuantizeLinear", x, *operands)
        return str(net.node("DequantizeLinear", x, *operands))

    perm = rng.permutation(len(shape)) if seed % 4 == 3 else np.arange(len(shape))
    x = tensor(net.input("x", [shape[axis] for axis in np.argsort(perm)]), step)
    if seed % 4 == 3:
        x = tensor(net.node("Transpose", x, perm=perm.tolist()), step)
    op = "ReduceSum" if seed % 3 == 2 else "ReduceMean"
    y = net.node(op, x, net.weight(np.array(axes)), keepdims=int(rng.integers(2)))
    result = step if rng.random() < 0.6 else np.float32(rng.uniform(0.003, 0.03))
    return net.model(tensor(y, np.float32(result * 4) if op == "ReduceSum" else result))


def order_of(
    shape: tuple[int, ...], axes: tuple[int, ...], **scales: Quantization
) -> OpCall:
    """Return a mean whose order is that of its own axes."""
    kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    x, y = scales.get("x", UNIT), scales.get("y", UNIT)
    attrs = AxesAttrs(axes=axes, keep_dims=False, float_order=tuple(range(len(shape))))
    types = (TensorType(shape, INT8, x),), (TensorType(kept, INT8, y),)
    return OpCall("mean", *types, attrs, numerics="onnx")


def test_reductions_equal_onnx_runtime(deep: bool) -> None:
    models = [reduced(seed) for seed in range(DEEP_GRAPHS if deep else 3 * len(SHAPES))]
    modules = list(map(imported, models))
    inputs = [inputs_of(module, seed) for seed, module in enumerate(modules)]
    feeds = {
        f"{k}.{name}": x for k, part in enumerate(inputs) for name, x in part.items()
    }
    (expected,) = run_reference(merged(models), [feeds], "onnxruntime").outputs
    different = []
    for seed, (module, part) in enumerate(zip(modules, inputs, strict=True)):
        ((name, value),) = results(module, part).items()
        assert isinstance(module.entry, Function)
        assert any(getattr(call.attrs, "float_order", ()) for call in module.entry.body)
        if not np.array_equal(value, expected[f"{seed}.{name}"]):
            different.append(seed)
    assert different == []


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_of_the_reductions_has_the_same_integers(board: str) -> None:
    modules = [imported(reduced(seed)) for seed in range(len(SHAPES))]
    inputs = [inputs_of(module, seed) for seed, module in enumerate(modules)]
    (got,) = run_merged(modules, [inputs], board)
    for seed, (module, part) in enumerate(zip(modules, inputs, strict=True)):
        ((name, value),) = results(module, part).items()
        np.testing.assert_array_equal(got[f"{seed}.{name}"], value, str(seed))


def test_away_from_ties_the_rounded_integer_sum_is_that_of_floats(deep: bool) -> None:
    """Check every sum of random means at both ends of the float sums' error."""
    rng, near = np.random.Generator(np.random.PCG64(8)), 0
    for _ in range(3000 if deep else 60):
        shape, axes = SHAPES[int(rng.integers(len(SHAPES)))]
        x, y = (
            Quantization((float(np.float32(rng.uniform(0.01, 0.1) * size)),), (point,))
            for size, point in (
                (1, 5 - 128),
                (rng.choice([0.2, 1, 5]), int(rng.integers(-128, 128))),
            )
        )
        call = order_of(shape, axes, x=x, y=y)
        test, order = TieTest.of(call), SumOrder.of(call)
        low, high = ((end - x.zero_point) * order.count for end in (INT8.min, INT8.max))
        sums = np.arange(low, high + 1)
        wide = (sums << test.left) + test.offset
        assert np.abs(wide).max() < 1 << 31
        raised = (wide * test.multiplier) >> 32
        is_near = (raised & ((1 << test.shift) - 1)) < test.width
        exact = sums * x.scale / (y.scale * order.count)
        error = 2.0**-24 * order.roundings * high * x.scale / (y.scale * order.count)
        for end in (exact - error, exact + error):
            own, other = (
                np.clip(n, -128, 127)
                for n in (raised >> test.shift, np.floor(end + 0.5) + y.zero_point)
            )
            np.testing.assert_array_equal(own[~is_near], other[~is_near])
        near += bool(is_near.any())
    assert near > 20


def test_float_sums_are_those_of_onnx_runtime() -> None:
    """Compare floats: a wrong order differs in most sums, not only near ties."""
    rng, expected, own = np.random.Generator(np.random.PCG64(2)), [], []
    for shape, axes in SHAPES:
        net, scale = Net(1, opset=18), np.float32(rng.uniform(0.01, 0.06))
        operands = [net.weight(np.array(n)) for n in (scale, np.int8(-3))]
        reals = net.node(
            "DequantizeLinear", net.input("x", shape, TensorProto.INT8), *operands
        )
        model = net.model(
            net.node("ReduceMean", reals, net.weight(np.array(axes)), keepdims=0)
        )
        x = rng.integers(-128, 128, shape).astype(np.int8)
        call = order_of(shape, axes, x=Quantization((float(scale),), (-3,)))
        expected += [
            np.ravel(y) for y in OnnxRuntimeSession(model, layers=False).run([x])
        ]
        own.append(float_sums(call, x))
    np.testing.assert_array_equal(np.concatenate(own), np.concatenate(expected))


def test_int32_means_do_not_overflow() -> None:
    net = Net(1, opset=18)
    x = net.input("x", (2, 3), TensorProto.INT32)
    model = net.model(net.node("ReduceMean", x, net.weight(np.array([1])), keepdims=0))
    sample = {"x": np.array([[2**30, 2**30, 2**30 - 1], [-7, -7, 6]], np.int32)}
    (expected,) = run_reference(model, [sample], "onnxruntime").outputs
    (own,) = results(imported(model), sample).values()
    np.testing.assert_array_equal(own, next(iter(expected.values())))
