"""Vector programs compute what the expression of an element says."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.errors import InternalError
from firmwright.kernels.elementwise import (
    ElementLoop,
    helium_program,
    riscv_program,
)
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa.c_numbers import less
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve import vaddq_n_s32, vaddq_s32, vshrq_n_s32
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.gate_functions import GATE_FUNCTIONS, GateFunction
from firmwright.schedules.float_elements import single_loop
from firmwright.schedules.helium import (
    add_sub,
    fully_connected,
    gate_functions,
    lstm_gates,
    lstm_units,
    moves,
    pool2d,
    requantize_values,
    resize_bilinear,
)
from firmwright.schedules.helium_floats import elementwise as float_elements
from firmwright.schedules.helium_floats import hybrid_conv2d
from firmwright.schedules.helium_floats import pool2d as float_pools
from firmwright.schedules.helium_floats import quantize as helium_quantize
from firmwright.schedules.pooling import exact_reciprocal
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import add_sub as riscv_add_sub
from firmwright.schedules.rvv import gate_functions as riscv_gate_functions
from firmwright.schedules.rvv import lstm_units as riscv_units
from firmwright.schedules.rvv import means as riscv_means
from firmwright.schedules.rvv import pool2d as riscv_pool2d
from firmwright.schedules.rvv import requantize_values as riscv_values
from firmwright.schedules.rvv_floats import elementwise as riscv_floats
from firmwright.schedules.rvv_floats import hybrid_conv2d as riscv_hybrid
from firmwright.schedules.rvv_floats import pool2d as riscv_float_pools
from firmwright.schedules.rvv_floats import quantize as riscv_quantize

CASES = 32
WORDS = RegisterPlace(RegisterClass.VECTOR, INT32, 4)


def drawn_elements(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Return values [element, case], some of which are extreme."""
    if dtype.is_float:
        return rng.normal(0, 4, (count, CASES)).astype(np.float32)
    values = rng.integers(dtype.min, dtype.max + 1, (count, CASES))
    extremes = rng.choice([dtype.min, dtype.max, -1, 0, 1], values.shape)
    return np.where(rng.random(values.shape) < 0.5, extremes, values).astype(dtype.np)


def check(
    program: VectorProgram,
    loop: ElementLoop,
    name: str,
    numbers: Mapping[str, int],
    lanes: int,
    used: int,
    extra: Mapping[str, list[Array]],
) -> None:
    """Compare the first `used` lanes, and that others are not stored."""
    rng = np.random.default_rng(lanes + used)
    pixels = numbers.get("rows", 1) * numbers.get("columns", 1)
    memory = {
        x.name: drawn_elements(rng, x.dtype, lanes * pixels) for x in loop.pointers
    }
    y = drawn_elements(rng, loop.output.dtype, lanes)
    if loop.output in loop.inputs:  # a sum that goes on
        y >>= 8
    everywhere = {x: np.full(CASES, value) for x, value in numbers.items()}
    registers = {x: [values] for x, values in everywhere.items()}
    state = run_program(
        program.chosen(numbers),
        evaluate,
        {**memory, loop.output.name: y},
        {**registers, **extra},
        {"at": 0},
    )
    intrinsic, expected = INTRINSICS[name], y.copy()
    given = {**memory, **numbers, loop.output.name: y, "count": used}
    everywhere |= {x: lanes[0] for x, lanes in extra.items()}
    arguments = []
    for operand in intrinsic.operands:
        place = everywhere if operand.kind == "in" else given
        arguments.append(place[operand.name])
    expected[:used] = intrinsic.meaning(*arguments)
    np.testing.assert_array_equal(state.memory[loop.output.name], expected)


def check_helium(
    loop: ElementLoop,
    name: str,
    numbers: Mapping[str, int],
    floats: Mapping[str, float] | None = None,
) -> None:
    lanes = 128 // loop.lane.bits
    extra = {x: [np.full(CASES, n, np.float32)] for x, n in (floats or {}).items()}
    check(helium_program(loop), loop, name, numbers, lanes, lanes, extra)
    inside = [np.full(CASES, lane < 3) for lane in range(lanes)]
    tail = helium_program(loop, is_tail=True)
    check(tail, loop, name, numbers, lanes, 3, {"inside": inside, **extra})


def check_riscv(
    loop: ElementLoop,
    name: str,
    numbers: Mapping[str, int],
    lanes: int,
    floats: Mapping[str, float] | None = None,
) -> None:
    extra = {x: [np.full(CASES, n, np.float32)] for x, n in (floats or {}).items()}
    for used in (1, lanes - 1, lanes):
        length = {"vl": [np.full(CASES, used)]}
        program = riscv_program(loop, lanes)
        check(program, loop, name, numbers, lanes, used, {**length, **extra})


def drawn_sum(rng: np.random.Generator, dtype: DType) -> dict[str, int]:
    is_byte, is_away = dtype == INT8, bool(rng.integers(2))
    numbers = {"zero_point": int(rng.integers(-128, 128)) * is_byte}
    for name in ("a", "b"):
        numbers[f"zero_{name}"] = int(rng.integers(-128, 128)) * is_byte
        numbers[f"multiplier_{name}"] = int(rng.choice([1 << 30, (1 << 31) - 1]))
        # Some shifts are so large that there are halves, which round away from zero.
        numbers[f"shift_{name}"] = -int(rng.choice([0, 1, 20, 21]))
    numbers["multiplier"] = int(rng.integers(1 << 30, 1 << 31))
    # Halves that round up are right if all negative values are clamped.
    low = dtype.min if is_away else numbers["zero_point"]
    high = int(rng.choice([dtype.max, max(low, 5)]))
    shift = -int(rng.choice([1, 2, 8, 19]))
    return {**numbers, "shift": shift, "low": low, "high": high, "rounding": is_away}


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(("name", "sign"), [("add", 1), ("sub", -1), ("mul", 0)])
def test_sums_of_helium(name: str, sign: int, dtype: DType) -> None:
    rng = np.random.default_rng(sign + 1)
    loop = add_sub.vector_sum(sign, dtype)
    for _ in range(8):
        check_helium(loop, f"mve_{name}_{dtype.name}", drawn_sum(rng, dtype))


def test_linear_sums_of_helium() -> None:
    rng = np.random.default_rng(3)
    for shift in (19, 23):
        factors = (int(each) for each in rng.integers(-(1 << 22), 1 << 22, 3))
        numbers = dict(zip(("factor_a", "factor_b", "addend"), factors, strict=True))
        numbers |= {"shift": shift, "low": -128, "high": 99}
        check_helium(add_sub.LINEAR_LOOP, "mve_linear_sum_int8", numbers)


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_sums_of_riscv_vectors(name: str, dtype: DType) -> None:
    rng = np.random.default_rng(len(name))
    loop = riscv_add_sub.vector_sum(name, dtype)
    check_riscv(loop, f"rvv_{name}_{dtype.name}", drawn_sum(rng, dtype), 32)


@pytest.mark.parametrize(("dtype", "lane", "bits"), [(INT8, 16, 3), (INT16, 32, 8)])
def test_interpolations_of_helium(dtype: DType, lane: int, bits: int) -> None:
    loop = resize_bilinear.interpolation(dtype, lane)
    whole = 1 << bits
    for up, left in product((0, 1, whole), (0, 3, whole)):
        weights = {"up": up, "down": whole - up, "bits": 2 * bits}
        weights |= {"to_left": left, "to_right": whole - left}
        check_helium(loop, f"mve_interpolate_{dtype.name}_{lane}", weights)


def window_numbers(lanes: int, rows: int, columns: int) -> dict[str, int]:
    """Return the numbers of a window whose pixels have `lanes` channels."""
    steps = {"row_step": columns * lanes, "step": lanes}
    return {"rows": rows, "columns": columns, **steps}


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
def test_maxima_of_helium(dtype: DType) -> None:
    loop = pool2d.MAX_ROWS[dtype].loop(dtype)
    numbers = window_numbers(128 // dtype.bits, 2, 3)
    for low, high in ((dtype.min, dtype.max), (-3, 100)):
        limits = {"start": dtype.min, "low": low, "high": high}
        check_helium(loop, f"mve_max_{dtype.name}", {**numbers, **limits})


def mean_numbers(lanes: int, dtype: DType, lane: DType, columns: int) -> dict[str, int]:
    taps = 3 * columns
    start = taps // 2 - taps * dtype.min
    reciprocal = exact_reciprocal(taps, start + taps * dtype.max, lane.bits)
    assert reciprocal is not None
    return {
        **window_numbers(lanes, 3, columns),
        "start": start,
        "is_even": 1 - taps % 2,
        "reciprocal": int(np.uint32(reciprocal.factor).astype(np.int32)),
        "shift": reciprocal.shift,
        "low": -2,
        "high": dtype.max,
    }


@pytest.mark.parametrize(("dtype", "lane"), pool2d.MEANS)
@pytest.mark.parametrize("columns", [1, 2, 4])
def test_means_of_helium(dtype: DType, lane: DType, columns: int) -> None:
    numbers = mean_numbers(128 // lane.bits, dtype, lane, columns)
    name = f"mve_mean_{dtype.name}_{lane.bits}"
    check_helium(pool2d.MEANS[dtype, lane], name, numbers)


@pytest.mark.parametrize("shift", [0, -1, -9])
@pytest.mark.parametrize("zero_point", [-128, 5])
def test_requantized_values_of_helium(zero_point: int, shift: int) -> None:
    numbers = {"offset": 0, "multiplier": 1 << 23, "zero_point": zero_point}
    # Halves that round up are right if all negative values are clamped.
    numbers |= {"shift": shift, "rounding": zero_point > -128}
    for dtype in (INT8, INT16, INT32):
        loop = requantize_values.requantize_loop(dtype)
        check_helium(loop, f"mve_requantize_{dtype.name}", numbers)


@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 0), (0, 1), (0, 9)])
def test_requantized_values_of_riscv_vectors(left: int, right: int) -> None:
    for x, y in riscv_values.CONVERSIONS:
        if x == INT32 and right == 0:
            continue
        numbers = {"offset": 0 if x == INT32 else -128, "multiplier": (1 << 31) - 1}
        numbers |= {"left": left, "right": right, "zero_point": -7 * (y == INT8)}
        loop = riscv_values.requantize_loop(x, y)
        check_riscv(loop, riscv_values.name(x, y), numbers, 32)


@pytest.mark.parametrize("function", GATE_FUNCTIONS, ids=lambda each: each.name)
def test_gate_functions_of_all_halves(function: GateFunction) -> None:
    vectors = gate_functions.GateVectors(function)
    halves = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    memory = {"x": halves.reshape(8, -1), "y": np.zeros((8, 1 << 13), np.int16)}
    program = helium_program(vectors.loop).chosen({})
    state = run_program(program, evaluate, memory, {}, {"at": 0})
    expected = function.apply(halves)
    np.testing.assert_array_equal(np.array(state.memory["y"]).reshape(-1), expected)
    check_helium(vectors.loop, vectors.name, {})


@pytest.mark.parametrize(
    "function", riscv_gate_functions.FUNCTIONS, ids=lambda each: each.name
)
def test_gate_functions_of_riscv_vectors(
    function: riscv_gate_functions.RiscvGateFunction,
) -> None:
    lanes, used = (
        riscv_gate_functions.LANES,
        [np.full(1 << 11, riscv_gate_functions.LANES)],
    )
    halves = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    memory = {"x": halves.reshape(lanes, -1), "y": np.zeros((lanes, 1 << 11), np.int16)}
    program = riscv_program(function.loop, lanes).chosen({})
    state = run_program(program, evaluate, memory, {"vl": used}, {"at": 0})
    expected = function.function.apply(halves)
    np.testing.assert_array_equal(np.array(state.memory["y"]).reshape(-1), expected)


def test_units_of_riscv_vectors() -> None:
    limits = {"low": -1000, "high": 1000}
    for shift in (-18, -20):
        numbers = {"shift": shift, **limits}
        loop, lanes = riscv_units.CELL_LOOP, riscv_units.LANES
        check_riscv(loop, riscv_units.CELL_KERNEL, numbers, lanes)
    scale = {"multiplier": (1 << 31) - 1, "shift": -23, "zero_point": -5}
    loop = riscv_units.HIDDEN_LOOP
    check_riscv(loop, riscv_units.HIDDEN_KERNEL, scale, riscv_units.LANES)
    for shift in (-7, 0, 1):
        numbers = {"input_multiplier": 1 << 30, "input_shift": shift - 12}
        numbers |= {"hidden_multiplier": (1 << 31) - 1, "hidden_shift": shift - 8}
        loop = riscv_units.GATE_LOOP
        check_riscv(loop, riscv_units.GATE_KERNEL, numbers, 32)


@pytest.mark.parametrize("twice", [False, True])
def test_cells_of_helium(twice: bool) -> None:
    for shift, limit in ((-18, 0), (-20, 1000)):
        numbers = {"shift": lstm_units.cell_shift(shift, twice=twice)}
        low, high = (-limit, limit) if limit else (INT16.min, INT16.max)
        name = lstm_units.cell_kernel(twice=twice)
        loop = lstm_units.helium_cell_loop(twice=twice)
        check_helium(loop, name, {**numbers, "low": low, "high": high})


def test_hidden_values_of_helium() -> None:
    for multiplier, shift in ((1 << 30, -21), ((1 << 31) - 1, -23), (1 << 30, -1)):
        scale = {"multiplier": multiplier, "shift": shift, "zero_point": -5}
        check_helium(lstm_units.HIDDEN_LOOP, lstm_units.HIDDEN_KERNEL, scale)


@pytest.mark.parametrize("saturates", [0, 1])
@pytest.mark.parametrize("most_shift", [-1, 0, 3])
def test_gates_of_helium_are_those_of_the_intrinsic(
    saturates: int, most_shift: int
) -> None:
    k = VectorBuilder("gates")
    total = k.variable("sum", WORDS)
    lstm_gates.gate_steps(k, total, adds=True)
    rng = np.random.default_rng(most_shift + 1)
    reach = 1 << (20 - max(most_shift, 0))
    sums = {
        "sum": rng.integers(-reach, reach, (4, CASES)),
        "bias": rng.integers(-reach, reach, (4, CASES)),
        "multiplier": rng.choice([1 << 30, (1 << 31) - 1], (4, CASES)),
        "shift": rng.choice([most_shift, -1, -6], (4, CASES)),
        "x_steps": rng.choice([-32768, -5, 6, 32767], (4, CASES)),
    }
    numbers = {"most_shift": most_shift, "saturates": saturates}
    given = {name: list(lanes) for name, lanes in sums.items()}
    given |= {name: [np.full(CASES, value)] for name, value in numbers.items()}
    program = k.build_vectors().chosen(numbers)
    state = run_program(program, evaluate, {}, given, {})
    halves = np.array(state.registers["sum"]).astype(np.int16)
    expected = lstm_gates.GATE.meaning(*sums.values(), saturates)
    np.testing.assert_array_equal(halves, expected)


def test_sums_of_rows_of_helium() -> None:
    numbers = {**window_numbers(4, 2, 3), "start": 0}
    check_helium(pool2d.ROW_SUMS, "mve_add_row", numbers)


@pytest.mark.parametrize(("dtype", "lane"), riscv_pool2d.SUMS.items())
def test_pools_of_riscv_vectors(dtype: DType, lane: DType) -> None:
    lanes = riscv_pool2d.means_lanes(dtype)
    numbers = mean_numbers(lanes, dtype, lane, 2)
    name = f"{dtype.name}_{lane.bits}"
    check_riscv(riscv_pool2d.MEANS[dtype], f"rvv_mean_{name}", numbers, lanes)
    lanes = riscv_pool2d.maxima_lanes(dtype)
    limits = {"start": dtype.min, "low": -100, "high": 90}
    numbers = {**window_numbers(lanes, 2, 2), **limits}
    check_riscv(riscv_pool2d.MAXIMA[dtype], f"rvv_max_{dtype.name}", numbers, lanes)


@pytest.mark.parametrize("activation", range(4))
def test_floats_of_helium(activation: int) -> None:
    for op in ("add", "sub", "mul"):
        loop = float_elements.pair_loop(op)
        check_helium(loop, f"mve_{op}_f32", {"activation": activation})
    window = {**window_numbers(4, 2, 3), "activation": activation}
    start = np.finfo(np.float32).min
    check_helium(float_pools.MAXIMA, "mve_maximum_f32", window, {"start": start})
    for taps, inverse in ((6, 0.0), (4, 0.25)):
        window = window_numbers(4, 2, taps // 2)
        numbers = {**window, "activation": activation, "is_exact": int(taps == 4)}
        floats = {"start": 0.0, "taps": float(taps), "inverse": inverse}
        check_helium(float_pools.MEANS, "mve_mean_f32", numbers, floats)


def test_hard_swish_of_helium() -> None:
    check_helium(float_elements.HARD_SWISH, "mve_hard_swish_f32", {})


@pytest.mark.parametrize("dtype", [INT8, INT16], ids=lambda dtype: dtype.name)
def test_floats_of_integers_of_helium(dtype: DType) -> None:
    check_helium(
        helium_quantize.dequantize_loop(dtype),
        helium_quantize.dequantize_name(dtype),
        {"zero_point": -7},
        {"scale": 0.0325},
    )


def test_flips_of_signs_of_helium() -> None:
    check_helium(moves.SIGN_FLIPS, "mve_flip_signs", {})


def test_conditions_choose_steps_and_print_as_statements() -> None:
    k = VectorBuilder("example")
    total, limit = k.variable("total", WORDS), k.number("limit")
    with k.when(k(less, limit, 1 << 20)):
        k(vaddq_n_s32, total, limit, into=total)
    with k.otherwise():
        k(vaddq_s32, total, k(vshrq_n_s32, total, 31), into=total)
    program = k.build_vectors()
    assert (
        vector_text(program)
        == """\
if (limit < 1 << 20) {
    total = vaddq_n_s32(total, limit);
} else {
    total = vaddq_s32(total, vshrq_n_s32(total, 31));
}"""
    )
    for limit_value, names in (
        (5, ["vaddq_n_s32"]),
        (1 << 21, ["vshrq_n_s32", "vaddq_s32"]),
    ):
        steps = program.chosen({"limit": limit_value}).body
        assert [step.instr.name for step in steps if step.instr.asm] == names


def test_an_expression_must_be_used_before_its_operand_changes() -> None:
    k = VectorBuilder("example")
    total = k.variable("total", WORDS)
    sign = k(vshrq_n_s32, total, 31)
    k(vaddq_n_s32, total, k.number("limit"), into=total)
    k(vaddq_s32, total, sign, into=total)
    with pytest.raises(InternalError, match="overwrites"):
        vector_text(k.build_vectors())


@pytest.mark.parametrize("moves", [0, 1])
def test_floats_are_quantized_to_the_nearest(moves: int) -> None:
    for inverse in (0.5, 17.3, 1e6):
        numbers = {"offset": -5, "moves": moves}
        check_helium(
            hybrid_conv2d.QUANTIZE_LOOP,
            "mve_quantize_f32",
            numbers,
            {"inverse": inverse},
        )


@pytest.mark.parametrize("sign", [0, 3])
def test_sums_of_helium_are_scaled_in_the_folded_form(sign: int) -> None:
    rng = np.random.default_rng(sign)
    k = VectorBuilder("folded")
    total, bias = k.variable("total", WORDS), k.variable("bias", WORDS)
    fully_connected.scale_folded(k, total, bias)
    numbers = {"multiplier": 1518500250, "left": 4, "addend": -900, "sign": sign}
    numbers |= {"shift": 3}
    sums = rng.integers(-(1 << 20), 1 << 20, (2, 4, CASES)).astype(np.int32)
    registers = {x: [np.full(CASES, n, np.int32)] for x, n in numbers.items()}
    registers |= {"total": list(sums[0]), "bias": list(sums[1])}
    program = k.build_vectors().chosen(numbers)
    state = run_program(program, evaluate, {}, registers, {})
    scaled = np.clip(np.array(state.registers["total"]), -100, 110)
    expected = fully_connected.FOLDED.meaning(*sums, *numbers.values(), -100, 110)
    np.testing.assert_array_equal(scaled, expected)


def test_sums_of_channels_of_riscv_vectors() -> None:
    numbers = {**window_numbers(32, 2, 3), "start": -77}
    check_riscv(riscv_means.SUM_LOOP, "rvv_sum_channels_int8", numbers, 32)


@pytest.mark.parametrize("activation", range(4))
def test_floats_of_riscv_vectors(activation: int) -> None:
    for op in ("add", "sub", "mul"):
        loop = riscv_floats.pair_loop(op)
        check_riscv(loop, f"rvv_{op}_f32", {"activation": activation}, 32)
    window = {**window_numbers(32, 2, 3), "activation": activation}
    start = {"start": np.finfo(np.float32).min}
    check_riscv(riscv_float_pools.MAXIMA, "rvv_maximum_f32", window, 32, start)
    for taps, inverse in ((6, 0.0), (4, 0.25)):
        window = window_numbers(32, 2, taps // 2)
        numbers = {**window, "activation": activation, "is_exact": int(taps == 4)}
        floats = {"start": 0.0, "taps": float(taps), "inverse": inverse}
        check_riscv(riscv_float_pools.MEANS, "rvv_mean_f32", numbers, 32, floats)
    numbers = {"zero_point": 0, "activation": activation}
    loop, scale = riscv_hybrid.CONVERTED_LOOP, {"scale": 1e-5}
    check_riscv(loop, "rvv_converted_f32", numbers, 32, scale)


@pytest.mark.parametrize("op", riscv_floats.FUNCTIONS)
def test_functions_of_riscv_vectors(op: str) -> None:
    _, compute, _ = riscv_floats.FUNCTIONS[op]
    check_riscv(single_loop(compute), f"rvv_{op}_f32", {}, 32)


def test_conversions_of_riscv_vectors() -> None:
    floats = {"scale": 0.0325, "least": -512.0, "most": 512.0}
    numbers = {"zero_point": -7}
    loop = riscv_quantize.QUANTIZE_LOOP
    check_riscv(loop, "rvv_quantize_floats", numbers, 32, floats)
    loop = riscv_quantize.DEQUANTIZE_LOOP
    check_riscv(loop, "rvv_dequantize_floats", numbers, 32, floats)
    for is_moved in (0, 1):
        numbers = {"moves": is_moved, "offset": -9}
        loop = riscv_hybrid.QUANTIZE_LOOP
        inverse = {"inverse": 21.7}
        check_riscv(loop, "rvv_quantize_row_f32", numbers, 32, inverse)
