"""int16 layers execute at most three instructions per multiply-add on DSP cores.

Layers with few products per output cannot, because an output alone takes more. Their
limit is

    CALL + outputs * (OUTPUT + requantization) + products * (instructions per product)

with the instructions of the best exact kernels that we know:

- CALL: save registers, load addresses, start loops.
- OUTPUT: load the bias, store, and the tile's share of counting, branching and
  addressing.
- Requantization, with the loads of its parameters: load, SMMLA, SSAT and, if channels
  differ, load and shift; for two roundings, a sign term. A factor of 53 bits takes two
  words: two loads, shift, SMULL, ASR, SMLAL, ADD, SSAT. A sum of 64 bits takes ADDS and
  ADC for the bias, UMULL, MLA, ADD, SSAT; if the factors of the channels differ by more
  than the spare bits, shifts of the sum and of the product, another table, and its
  address. Other bounds than those of SSAT and USAT are two comparisons, two moves in IT
  blocks, and a constant. Sums whose scaled value may exceed 32 bits, and 64-bit sums
  times 53 bits, need products and shifts of 64 bits by a variable.
- A product: SMLAD takes half an instruction, and the operands are loaded by pairs: the
  weights for one pixel, or the input for one channel. Fully connected layers read their
  weights by words of four. Depthwise windows slide over several outputs, but with sums
  of 64 bits they have too few registers: SMLABB, and half of the loads of input and
  weights for a tile of two channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import firmwright as fw
from firmwright.base.dtypes import INT16, INT64
from firmwright.base.quant import Rounding
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase, float32
from firmwright.extensions.tune.kernel_comparison import layer_module
from firmwright.flows.measure.profiling import profile
from firmwright.flows.model.compilation import compile_for
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import requantization_of
from firmwright.ops.fully_connected import defined_requantization
from firmwright.ops.int16x8 import ExactScale, accumulator_dtype
from firmwright.ops.registry import op_table
from firmwright.ops.requantize import accumulator_bounds, scale_factors
from tests.conformance.generated_layers import generate_layers
from tests.conformance.kernel_batches import import_cases
from tests.conformance.layer_shapes import Shapes
from tests.conformance.random_other_layers import FIRST, other_layer
from tests.ops.tflite_writer import write_cases

BOARD = "mps2-an386"
MAX_PER_MAC = 3.0
CALL, OUTPUT, LONG_DEPTHWISE_OUTPUT = 40, 6, 9
ONCE, TWICE, TWO_WORDS, LONG, LONG_SHIFTED = 5, 7, 9, 9, 20
VARIABLE_SHIFTS, VARIABLE_SHIFTS_TWO_WORDS = 36, 60
CLAMP = 7
SPARE_FACTOR = 2.0**12
"""Quotient of factors up to which a sum of 64 bits takes no shifts of its own."""
PRODUCT, LONG_DEPTHWISE_PRODUCT = 1.5, 2.0
NAMES = ("int16_conv", "int16_depthwise", "int16_fully_connected", "int16_transposed")
SELECTED = tuple(FIRST + n for n in (51, 87, 109, 111, 140, 171, 214, 247, 260, 334))
"""Hard layers of the grid.

64-bit sums, dilation, several filters per channel, odd channels, one channel, few
outputs, few products, transposed.
"""
MOST_FEW_PRODUCTS = 18
GRID = 400
BLOCK = 100
IMAGE = (1, 8, 8)
OPTIONS = {
    "padding": "SAME",
    "stride_h": 1,
    "stride_w": 1,
    "dilation_h_factor": 1,
    "dilation_w_factor": 1,
    "fused_activation_function": "NONE",
}


def convolution(channels: int, outputs: int) -> Shapes:
    x, w, y = (*IMAGE, channels), (outputs, 1, 1, channels), (*IMAGE, outputs)
    return Shapes("CONV_2D", x, w, y, 0, dict(OPTIONS))


def depthwise(rows: int, columns: int, channels: int) -> Shapes:
    x, w = (*IMAGE, channels), (1, rows, columns, channels)
    return Shapes("DEPTHWISE_CONV_2D", x, w, x, 3, {**OPTIONS, "depth_multiplier": 1})


LAYERS = (
    convolution(4, 16),
    convolution(8, 7),
    depthwise(3, 3, 13),
    depthwise(5, 5, 8),
    depthwise(1, 3, 8),
)


def layer(shapes: Shapes, number: int) -> ConformanceCase:
    rng = np.random.default_rng(number)
    count = shapes.w[shapes.axis]
    scales = tuple(map(float32, 2.0 ** rng.uniform(-9.5, -7.5, count)))
    bias = rng.integers(-9000, 9000, count)
    weights = rng.integers(-127, 128, shapes.w).astype(np.int8)
    x_scale = y_scale = 2.0**-12
    units = tuple(x_scale * scale for scale in scales)
    tensors = (
        CaseTensor(shapes.x, "int16", (x_scale,), (0,)),
        CaseTensor(shapes.w, "int8", scales, (0,) * count, shapes.axis, weights),
        CaseTensor((count,), "int64", units, (0,) * count, 0, bias),
    )
    return shapes.case(
        f"layer_{number}", tensors, CaseTensor(shapes.y, "int16", (y_scale,), (0,))
    )


def requantization(op: OpCall) -> int:
    """Return the instructions of the requantization of an output; see above."""
    axis = 3 if op.op == "depthwise_conv2d" else 0
    is_matrix = op.op == "fully_connected"
    step = defined_requantization(op) if is_matrix else requantization_of(op)
    is_long, factors = accumulator_dtype(op, axis) == INT64, np.array(scale_factors(op))
    is_regular = (step.clamp_min, step.clamp_max) in (
        (INT16.min, INT16.max),
        (0, INT16.max),
    )
    clamp = 0 if is_regular else CLAMP
    if isinstance(step, ExactScale):
        return clamp + (VARIABLE_SHIFTS_TWO_WORDS if is_long else TWO_WORDS)
    if not is_long:
        return clamp + (TWICE if step.rounding is Rounding.TWICE else ONCE)
    if (accumulator_bounds(op, axis) * factors).max() >= 1 << 31:
        return clamp + VARIABLE_SHIFTS
    return clamp + (
        LONG if factors.max() <= SPARE_FACTOR * factors.min() else LONG_SHIFTED
    )


def limit(op: OpCall) -> float:
    """Return the greatest permitted number of instructions of a layer."""
    outputs, macs = op.output.elements, op_table()[op.op].macs(op)
    own, products = OUTPUT, PRODUCT * macs
    if op.op == "depthwise_conv2d" and accumulator_dtype(op, 3) == INT64:
        own, products = LONG_DEPTHWISE_OUTPUT, LONG_DEPTHWISE_PRODUCT * macs
    elif op.op == "fully_connected":
        products = PRODUCT * outputs * 4 * -(-op.input(1).shape[1] // 4)
    least = CALL + outputs * (own + requantization(op)) + products
    return max(MAX_PER_MAC * macs, least)


def operator_calls(cases: Sequence[ConformanceCase]) -> list[OpCall]:
    module = import_cases(cases, "litert")
    assert isinstance(module.entry, Function)
    return [make_op_call(call, module) for call in module.entry.body]


def beyond_limit(
    cases: Sequence[ConformanceCase], folder: Path, *, samples: int = 0
) -> list[str]:
    """Compile the layers into one image; describe those beyond their limit."""
    calls = operator_calls(cases)
    file = folder / "layers.tflite"
    file.write_bytes(write_cases(cases))
    compiled = fw.compile(fw.load(file), board=BOARD)
    assert not samples or fw.verify(compiled, samples=samples).exact
    counted = profile(compiled, count_instructions=True).operators
    assert len(counted) == len(calls)
    found = []
    for operator in counted:
        index = int(
            operator.name[1:].split("_")[0]
        )  # tensors are called n0_y0, n1_y0, ...
        most = limit(calls[index])
        if operator.count > most:
            found.append(
                f"{cases[index].name}: {operator.count} > {most:.0f}, {operator.schedule}"
            )
    return found


@pytest.mark.deep
@pytest.mark.qemu("arm")
def test_int16_layers_take_few_instructions(tmp_path: Path) -> None:
    usual = [layer(shapes, number) for number, shapes in enumerate(LAYERS)]
    cases = [*usual, *(other_layer(number) for number in SELECTED)]
    assert beyond_limit(cases, tmp_path, samples=1) == []


@pytest.mark.deep
@pytest.mark.qemu("arm")
@pytest.mark.parametrize("first", range(FIRST, FIRST + GRID, BLOCK))
def test_every_int16_layer_of_the_grid_takes_few_instructions(
    first: int, tmp_path: Path
) -> None:
    drawn = (other_layer(number) for number in range(first, first + BLOCK))
    cases = [case for case in drawn if case.name.startswith(NAMES)]
    assert len(cases) == BLOCK // 4
    assert beyond_limit(cases, tmp_path) == []


@pytest.mark.deep
@pytest.mark.qemu("arm")
@pytest.mark.parametrize("seed", range(4))
def test_generated_int16_layers_take_few_instructions(seed: int) -> None:
    calls = [
        call
        for call in islice(generate_layers(seed), 15)
        if call.input(0).dtype == INT16
    ]
    assert len(calls) == 4
    for call in calls:
        compiled = compile_for(layer_module(call), BOARD)
        (operator,) = profile(compiled, count_instructions=True).operators
        assert operator.count <= limit(call), operator


def test_only_layers_of_few_products_may_exceed_three_instructions_per_product() -> (
    None
):
    drawn = (other_layer(number) for number in range(FIRST, FIRST + GRID))
    cases = [case for case in drawn if case.name.startswith(NAMES)]
    above = []
    for call in operator_calls(cases):
        macs = op_table()[call.op].macs(call)
        if limit(call) > MAX_PER_MAC * macs:
            above.append(macs / call.output.elements)
    assert len(above) < len(cases) // 3
    assert max(above) <= MOST_FEW_PRODUCTS
