"""Float schedules on Helium: bit-exact ones, and those that round once per term."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule
from firmwright.schedules.helium import pool_rows
from firmwright.schedules.helium_floats import elementwise as float_elements
from firmwright.schedules.helium_floats import pool2d as float_pools
from firmwright.schedules.helium_floats import (
    products,
    quantize,
    variable_fully_connected,
)
from firmwright.schedules.helium_floats.accumulate_f32 import accumulate
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import products as riscv_products
from firmwright.schedules.rvv_floats import products as riscv_float_products
from tests.unit.ir.verified import verify_prim_func


def nearest(value: Fraction) -> np.float32:
    """Round an exact value to float32, ties to even."""
    if value == 0:
        return np.float32(0)
    exponent = max(math.frexp(float(value))[1] - 24, -149)
    return np.float32(math.ldexp(round(value / Fraction(2) ** exponent), exponent))


def test_fused_multiply_add_rounds_once() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        x, w = (
            np.float32(v) for v in rng.normal(size=2) * 2.0 ** rng.integers(-8, 8, 2)
        )
        exact = Fraction(float(x)) * Fraction(float(w))
        near = np.float32(float(exact))
        # Addends that cancel most of the product, or leave a tie but for one far bit.
        for total in (
            near,
            -near,
            np.float32(rng.normal()),
            near * np.float32(2.0**24),
        ):
            value = accumulate("fused", total, x, w)
            assert value == nearest(exact + Fraction(float(total)))


def floats(shape: tuple[int, ...]) -> TensorType:
    return TensorType(shape, FLOAT32)


def constant(values: Array) -> Constant:
    return Constant.from_array("row", values, FLOAT32)


def test_sums_of_the_last_axis_have_other_schedules() -> None:
    rows = {each.op: each for each in float_pools.SCHEDULES}["mean"]
    for shape, axes, kept in [((3, 8), (1,), (3,)), ((3, 4, 5), (0, 2), (4,))]:
        attrs = attrs_from_mapping("mean", {"axes": axes, "keep_dims": False})
        call = OpCall("mean", (floats(shape),), (floats(kept),), attrs, (None,))
        assert not rows.configs(call)


def elementwise(op: str, seed: int) -> OpCall:
    rng = np.random.default_rng(seed)
    kind = floats(tuple(map(int, rng.integers(1, 9, 3))))
    if op == "expression":
        return formula(seed)
    if op in ("hard_swish", "relu", "relu6"):
        return OpCall(op, (kind,), (kind,), NO_ATTRS, (None,))
    activation = str(rng.choice(["none", "relu", "relu6", "relu_n1_to_1"]))
    return OpCall(
        op,
        (kind, kind),
        (kind,),
        attrs_from_mapping(op, {"activation": activation}),
        (None, None),
    )


FORMULAS = [
    ("a + b", (3, 5, 7), (3, 5, 7)),
    ("b - a", (3, 5, 7), (7,)),
    ("a * b", (3, 5, 7), (3, 5, 1)),
    ("max(0.0, c * b + a)", (9,), (4, 9), (4, 9)),
    ("min(6.0, max(0.0, a * b + c))", (2, 4, 3), (2, 4, 1), (2, 4, 3)),
    ("float32(0.3) - a", (2, 9)),
    ("(1.5 + a * a) * b", (6, 6), (1,)),
    ("b - (a - 0.25) * c", (2, 6, 8), (2, 1, 1), (6, 8)),
    ("max(0.0, a) * b + c", (3, 4, 8), (8,), (8,)),
    ("min(6.0, max(0.0, a))", (3, 5)),
]


def formula(seed: int) -> OpCall:
    text, *shapes = FORMULAS[seed % len(FORMULAS)]
    attrs = attrs_from_mapping("expression", {"formula": text, "perms": ()})
    largest = np.broadcast_shapes(*shapes)
    kinds = tuple(map(floats, shapes))
    return OpCall("expression", kinds, (floats(largest),), attrs, (None,) * len(kinds))


def test_constants_of_rows_are_copied() -> None:
    schedules = {each.op: each for each in float_elements.SCHEDULES}
    rng = np.random.default_rng(1)
    row = rng.normal(size=6).astype(np.float32)
    kind = floats((32, 6))
    attrs = attrs_from_mapping("mul", {"activation": "none"})
    call = OpCall("mul", (kind, floats((6,))), (kind,), attrs, (None, constant(row)))
    x = rng.normal(size=kind.shape).astype(np.float32)
    (config,) = schedules["mul"].configs(call)
    actual = executed(call, lambda b: schedules["mul"].build(call, config, b), [x])
    np.testing.assert_array_equal(actual, x * row)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a / b", [(3, 4), (3, 4)]),
        ("a * b + c * d", [(3, 4)] * 4),
        ("max(a, 1.0) + b", [(3, 4)] * 2),
        ("float32(a) + b", [(3, 4)] * 2),
        ("a + b", [(1, 4), (3, 1)]),
        ("a * b", [(3, 4, 5), (1, 4, 1)]),
        ("a * b + c", [(3, 4, 5), (3, 1, 1), (5,)]),
    ],
)
def test_other_formulas_have_other_schedules(text: str, shapes: list) -> None:
    schedule = {each.op: each for each in float_elements.SCHEDULES}["expression"]
    attrs = attrs_from_mapping("expression", {"formula": text, "perms": ()})
    kinds = tuple(map(floats, shapes))
    y = floats(np.broadcast_shapes(*shapes))
    call = OpCall("expression", kinds, (y,), attrs, (None,) * len(kinds))
    assert not schedule.configs(call)


def pool(op: str, seed: int, channels: int | None = None) -> OpCall:
    """Return a pool; those of every second seed have dilated windows over the border."""
    rng = np.random.default_rng(seed)
    size, stride, outputs = (rng.integers(1, n, 2) for n in (5, 4, 4))
    channels = channels or int(rng.integers(1, 14))
    before = np.minimum(size - 1, seed % 2)
    dilation, outputs = 1 + before, outputs + before
    attrs = {
        "size": tuple(map(int, size)),
        "stride": tuple(map(int, stride)),
        "dilation": tuple(map(int, dilation)),
        "padding": tuple(map(int, np.repeat(before, 2))),
        "activation": str(rng.choice(["none", "relu", "relu6", "relu_n1_to_1"])),
    }
    reach = (size - 1) * dilation + 1
    height, width = map(int, (outputs - 1) * stride + reach - 2 * before)
    x, y = (
        floats((2, height, width, channels)),
        floats((2, *map(int, outputs), channels)),
    )
    return OpCall(op, (x,), (y,), attrs_from_mapping(op, attrs), (None,))


SUMMED = [
    ((1, 5, 3, 7), (1, 2), (1, 7)),
    ((2, 1, 6, 5), (2,), (2, 1, 5)),
    ((9, 1, 2, 4), (0,), (1, 2, 4)),
    ((3, 4), (0,), (4,)),
]


def sums(op: str, seed: int) -> OpCall:
    shape, axes, kept = SUMMED[seed % len(SUMMED)]
    attrs = {"axes": axes, "keep_dims": False}
    if op == "reduction":
        attrs |= {"formula": "a", "perms": (), "step": "add"}
    return OpCall(
        op, (floats(shape),), (floats(kept),), attrs_from_mapping(op, attrs), (None,)
    )


def executed(
    call: OpCall, build: Callable[[Kernel], None], arrays: Sequence[Array]
) -> Array:
    kernel = Kernel("kernel", call)
    build(kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    fill = np.nan if call.output.dtype.is_float else 77
    y = np.full(call.output.shape, fill, call.output.dtype.np)
    names = ("x", "x_1", "x_2")
    inputs = dict(zip(names, arrays, strict=False))
    interpret(func, {**inputs, "y": y}, INTRINSICS, constants=kernel.constants)
    return y


@pytest.mark.parametrize(
    "schedule",
    [*float_elements.SCHEDULES, *float_pools.SCHEDULES],
    ids=lambda schedule: schedule.name,
)
def test_elementwise_schedules_are_bit_exact(schedule: Schedule) -> None:
    make = pool if schedule.op.endswith("pool2d") else elementwise
    if schedule.op in ("mean", "sum", "reduction"):
        make = sums
    for seed in range(len(FORMULAS)):
        check(schedule, make(schedule.op, seed), seed, size=5)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("max(0.0, float32(b) * float32(0.0004) + a)", [(8, 1, 1), (1, 8, 3, 5)]),
        ("float32(b) - a", [(5,), (3, 5)]),
        ("max(0.0, float32(b))", [(1,), (3, 5)]),
    ],
)
def test_chains_begin_with_integers(text: str, shapes: list) -> None:
    schedule = {each.op: each for each in float_elements.SCHEDULES}["expression"]
    attrs = attrs_from_mapping("expression", {"formula": text, "perms": ()})
    kinds = floats(shapes[0]), TensorType(shapes[1], INT32)
    call = OpCall("expression", kinds, (floats(shapes[1]),), attrs, (None, None))
    check(schedule, call, seed=1)


@pytest.mark.parametrize(
    ("text", "shapes", "expected"),
    [
        ("a + b", [(3, 8), (3, 8)], [True, True]),
        ("max(0.0, a * 2.0 - 1.0)", [(3, 8)], [True]),
        ("a + a * a", [(3, 8)], [False]),
        ("a * b + c", [(3, 8), (3, 8), (3, 8)], [False, False, False]),
        ("a * b", [(3, 8), (8,)], [False, False]),
        ("float32(b) + a", [(1,), (3, 8)], [True, False]),
    ],
)
def test_results_overlap_operands_that_are_read_before(
    text: str, shapes: list, expected: list[bool]
) -> None:
    """Later steps and later rows read operands when results are written."""
    schedule = {each.op: each for each in float_elements.SCHEDULES}["expression"]
    attrs = attrs_from_mapping("expression", {"formula": text, "perms": ()})
    kinds = tuple(map(floats, shapes))
    if "float32(b)" in text:
        kinds = kinds[0], TensorType(shapes[1], INT32)
    call = OpCall("expression", kinds, (floats((3, 8)),), attrs, (None,) * len(shapes))
    (config,) = schedule.configs(call)
    kernel = Kernel("kernel", call)
    schedule.build(call, config, kernel)
    func = kernel.build()
    for name, may_overlap in zip(("x", "x_1", "x_2"), expected, strict=False):
        spans = find_offset_constraints(func, name, "y")
        allowed = spans is not None and all(span.allows(0, 0) for span in spans)
        assert allowed == may_overlap, name


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
def test_dequantize_is_bit_exact(dtype: DType) -> None:
    (_, schedule) = quantize.SCHEDULES
    kind = TensorType((3, 11), dtype, Quantization((0.0371,), (-7,)))
    outputs = (floats(kind.shape),)
    call = OpCall("dequantize", (kind,), outputs, NO_ATTRS, (None,))
    check(schedule, call, seed=2, size=40)
    subnormal = Quantization((1e-39,), (0,))
    kinds = (TensorType((3,), dtype, subnormal),)
    assert not schedule.configs(OpCall("dequantize", kinds, outputs, NO_ATTRS, (None,)))


PRODUCTS = [
    ([(5, 7, 1), (1, 7, 9)], (), (1,), (5, 9)),
    ([(2, 3, 4, 1), (2, 1, 4, 37)], (), (2,), (2, 3, 37)),
    ([(6, 3, 1), (1, 20, 6)], ((1, 0, 2), (0, 2, 1)), (1,), (3, 20)),
    ([(1, 8, 3), (4, 8, 1)], (), (1,), (4, 3)),
    ([(3, 4, 1), (1, 4, 3)], (), (1,), (3, 3)),
    ([(2, 1, 6, 5, 1), (2, 7, 1, 5, 10)], (), (3,), (2, 7, 6, 10)),
]


@pytest.mark.parametrize("dtype", [FLOAT32, INT32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", range(len(PRODUCTS)))
def test_products_are_sums_in_the_order_of_the_loops(case: int, dtype: DType) -> None:
    shapes, perms, axes, y = PRODUCTS[case]
    attrs = {"formula": "a * b", "perms": perms, "step": "add", "axes": axes}
    kinds = tuple(TensorType(shape, dtype) for shape in shapes)
    call = OpCall(
        "reduction",
        kinds,
        (TensorType(y, dtype),),
        attrs_from_mapping("reduction", {**attrs, "keep_dims": False}),
        (None, None),
    )
    check_products(call, case)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("rows", "outputs"), [(10, 1), (5, 6), (1, 19)])
def test_fully_connected_layers_of_tensors_are_products(
    rows: int, outputs: int, has_bias: bool
) -> None:
    (schedule,) = variable_fully_connected.SCHEDULES
    kinds = floats((rows, 7)), floats((outputs, 7)), floats((outputs,))
    attrs = {"activation": "none", "keep_dims": False}
    op = schedule.op
    call = OpCall(
        op,
        kinds[: 2 + has_bias],
        (floats((rows, outputs)),),
        attrs_from_mapping(op, attrs),
        (None,) * (2 + has_bias),
    )
    check(schedule, call, seed=rows)
    relu = attrs_from_mapping(op, {**attrs, "activation": "relu"})
    assert not schedule.configs(replace(call, attrs=relu))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_pixels_of_few_floats_are_gathered(channels: int) -> None:
    for seed in range(8):
        check(pool_rows.SCHEDULES[1], pool("max_pool2d", seed, channels), seed)


def check(schedule: Schedule, call: OpCall, seed: int, size: float = 1e4) -> None:
    """Compare the schedule with the default loops, for values of about `size`."""
    rng = np.random.default_rng(seed)
    arrays = []
    for kind in call.inputs:
        if kind is not None:
            drawn = size * rng.normal(size=kind.shape)
            arrays.append(drawn.astype(kind.dtype.np))
    expected = executed(call, lambda b: op_table()[call.op].lower(call, b), arrays)
    (config,) = schedule.configs(call)
    actual = executed(call, lambda b: schedule.build(call, config, b), arrays)
    np.testing.assert_array_equal(actual, expected)


def check_products(call: OpCall, seed: int) -> None:
    """Compare the schedules of Helium and of RISC-V vectors for products."""
    (dtype,) = {kind.dtype for kind in call.outputs}
    names = (f"rvv.{call.op}.products_{dtype.name}", "helium.")
    modules = (products, riscv_products, riscv_float_products)
    for module in modules:
        for schedule in module.SCHEDULES:
            if schedule.op == call.op and schedule.name.startswith(names):
                check(schedule, call, seed)


CONVOLUTIONS = [
    ((1, 3, 5, 9), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), (5, 9), 1),
    ((2, 4, 20), (6, 2, 3), (2,), (1,), (2,), (11,), 2),
    ((1, 8, 4, 5), (1, 8, 1, 1), (1, 1), (1, 1), (0, 0), (4, 5), 1),
    ((1, 1, 7, 40), (2, 1, 2, 3), (1, 2), (2, 3), (0, 1), (5, 18), 1),
    ((2, 2, 6, 7), (6, 2, 3, 3), (1, 1), (1, 1), (1, 1), (6, 7), 1),
    ((1, 4, 9), (10, 2, 3), (2,), (1,), (1,), (5,), 2),
]


@pytest.mark.parametrize("dtype", [FLOAT32, INT32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", range(len(CONVOLUTIONS)))
def test_convolutions_with_channels_first_are_products(case: int, dtype: DType) -> None:
    x, w, stride, dilation, before, outputs, groups = CONVOLUTIONS[case]
    attrs = {"stride": stride, "dilation": dilation, "before": before}
    attrs |= {"outputs": outputs, "groups": groups}
    shapes = [x, w] + [(w[0],)] * (case % 2)
    call = OpCall(
        "conv_nd",
        tuple(TensorType(shape, dtype) for shape in shapes),
        (TensorType((x[0], w[0], *outputs), dtype),),
        attrs_from_mapping("conv_nd", attrs),
        (None,) * len(shapes),
    )
    check_products(call, case)
