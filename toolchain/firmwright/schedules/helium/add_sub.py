"""add and sub of int8 tensors of equal shape on vectors of int32; on Helium, four at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.kernel import Kernel
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.schedules.helium import vector_requantize

_C = read_sections(__file__)

# Both inputs are rescaled to a common scale (ops/rescaled_sum.py): minus the zero point, times
# 2^20, doubling high multiply, rounding right shift for the smaller scale. VQRDMULH and VRSHL
# implement these steps except that halves of negative numbers round away from zero: 1 is subtracted
# from negative values before a shift. Obligation: no left shift, so that every value fits 32 bits.

OPERATORS = (("add", 1), ("sub", -1))
_IMMEDIATES = (
    "zero_a", "multiplier_a", "shift_a", "zero_b", "multiplier_b", "shift_b",
    "multiplier", "shift", "zero_point", "low", "high", "away", "count",
)  # fmt: skip


def _meaning(sign: int, a: Any, b: Any, y: Any, *rest: Any) -> Any:
    zero_a, multiplier_a, shift_a, zero_b, multiplier_b, shift_b, *after = rest
    multiplier, shift, zero_point, low, high, _, count = after

    def term(x: Any, zero: int, factor: int, by: int) -> Any:
        wide = (np.asarray(x)[:count].astype(np.int64) - zero) << 20
        return multiply_by_quantized_multiplier(wide, factor, by, Rounding.TWICE)

    total = term(a, zero_a, multiplier_a, shift_a) + sign * term(b, zero_b, multiplier_b, shift_b)
    scaled = multiply_by_quantized_multiplier(total, multiplier, shift, Rounding.TWICE)
    return np.clip(scaled + zero_point, low, high).astype(np.int8)


def _executed(args: Sequence[int], lanes: int) -> int:
    fixed = 14 + 2 + 2 * sum(args[at] < 0 for at in (5, 8)) + 2 * (args[14] > 0)
    return 10 + -(-args[15] // lanes) * fixed


def make_sum(name: str, sign: int, requires: str, text: str, lanes: int) -> Intrinsic:
    """Return the sum as an intrinsic of vectors with `lanes` lanes, with the C `text`."""
    return Intrinsic(
        name=f"{requires}_{name}",
        operands=(*pointers(INT8, a=1, b=1), *pointers(INT8, "w", y=1), *immediates(*_IMMEDIATES)),
        meaning=lambda *args: _meaning(sign, *args),
        portable=fill_text(_C["portable"], sign="+" if sign > 0 else "-"),
        doc=f"Rescaled {name} of `count` elements.",
        requires=requires,
        text={"gnu": text},
        count=lambda args: _executed(args, lanes),
    )


INTRINSICS = tuple(
    make_sum(name, sign, "mve", fill_text(_C["text"], sum=f"v{name}q_s32"), 4)
    for name, sign in OPERATORS
)


def sum_configs(op: OpCall) -> Sequence[Config]:
    kinds = [op.input(0), op.input(1)]
    if any(k.dtype != INT8 or k.shape != op.output.shape for k in kinds):
        return ()
    params = rescaled_sum(op)
    shifts = [*(term.shift for term in params.terms), *params.output.shifts]
    if max(shifts) > 0 or not vector_requantize.supports_requantize(params.output):
        return ()
    return ({},)


def build_sum(op: OpCall, config: Config, b: Kernel, family: str = "mve") -> None:
    params = rescaled_sum(op)
    count = op.output.elements
    output = params.output
    zero, low, high, away, _ = vector_requantize.epilogue_settings(output, 4)
    scales = [v for t in params.terms for v in (t.zero_point, t.multiplier, t.shift)]
    b.evaluate(
        f"{family}_{op.op}",
        [
            b.pointer(b.input(0), 0, count),
            b.pointer(b.input(1), 0, count),
            b.pointer(b.y, 0, count, "w"),
            *scales, output.multipliers[0], output.shifts[0], zero, low, high, away, count,
        ],
    )  # fmt: skip


SCHEDULES = tuple(
    Schedule(f"helium.{name}.vectors", name, frozenset({"mve"}), sum_configs, build_sum)
    for name, _ in OPERATORS
)
