"""int8 GEMM micro-kernels: four channels times two pixels, sixteen values at a time."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.dot_product_loop import (
    BYTES_PER_STEP,
    DOT_PRODUCT_LOOPS,
    REGISTERS,
    DotProductLoop,
)

# `mve_gemm_int8_LOOP` (dot_product_loop.py): a step reads sixteen values of two columns and sixteen
# weights of four channels, 14 instructions for 128 products. The sums are collected in two vectors
# of four channels, requantized (vector_requantize.py) and stored.

_PORTABLE = """\
const int8_t *const columns[2] = {x0, x1};
int8_t *const results[2] = {y0, y1};
(void)away;
for (int32_t p = 0; p < 2; ++p) {
    for (int32_t c = 0; c < lanes; ++c) {
        const int32_t at = c;
        int32_t sum = q[at];
        for (int32_t k = 0; k < taps; ++k) {
            sum += w[k / 16 * 64 + 16 * c + k % 16] * columns[p][k];
        }
STEP
        results[p][c] = (int8_t)(raised < high ? raised : high);
    }
}""".replace("STEP", indent(vector_requantize.PORTABLE, " " * 8))


def multiply_step(multiply: str, load: str, place: str) -> list[str]:
    lines = [f"{load} q0, [%[x0]{place}", f"{load} q1, [%[x1]{place}"]
    for channel in range(vector_requantize.CHANNELS):
        vector = 2 + channel % 2
        lines += [
            f"vldrb.8 q{vector}, [%[w]], #16",
            f"{multiply} {REGISTERS[channel]}, q0, q{vector}",
            f"{multiply} {REGISTERS[4 + channel]}, q1, q{vector}",
        ]
    return lines


def _text(loop: DotProductLoop) -> str:
    endings = (("first", "y0"), ("second", "y1"))
    return "\n".join([
        loop.frame(multiply_step, ("x0", "x1")),
        vector_requantize.PARAMETER_LOADS,
        *(vector_requantize.requantize_assembly(vector, target) for vector, target in endings),
    ])  # fmt: skip


def unpack_weights(w: Any, rows: int, taps: int) -> Any:
    """Convert weights [step, row, sixteen] (flat, lanes last) to int64 [row, tap, lanes]."""
    weights = np.asarray(w, np.int64)
    tail = weights.shape[1:]
    return (
        weights.reshape(-1, rows, BYTES_PER_STEP, *tail)
        .swapaxes(0, 1)
        .reshape(rows, -1, *tail)[:, :taps]
    )


def _meaning(w: Any, x0: Any, x1: Any, q: Any, y0: Any, y1: Any, *rest: Any) -> tuple[Any, ...]:
    *settings, taps = rest
    weights = unpack_weights(w, vector_requantize.CHANNELS, taps)
    return tuple(
        vector_requantize.requantize_lanes(
            (weights * np.asarray(x, np.int64)[None, :taps]).sum(axis=1), q, tuple(settings)
        )
        for x in (x0, x1)
    )


def _product(loop: DotProductLoop) -> Intrinsic:
    column = Operand("x0", "ptr", INT8, "r", loop.least_taps)
    return Intrinsic(
        name=f"mve_gemm_int8_{loop.suffix}",
        operands=(
            Operand("w", "ptr", INT8, "r", (loop.head + loop.tail) * BYTES_PER_STEP * 4),
            column,
            Operand("x1", "ptr", INT8, "r", loop.least_taps),
            Operand("q", "ptr", INT32, "r", vector_requantize.PARAMETERS),
            Operand("y0", "ptr", INT8, "w", 1),
            Operand("y1", "ptr", INT8, "w", 1),
            *vector_requantize.EPILOGUE_OPERANDS,
            Operand("taps", "imm", INT32),
        ),
        result=None,
        meaning=_meaning,
        portable=_PORTABLE,
        doc="Four channels of two pixels: products over a column, requantised.",
        requires="mve",
        text={"gnu": _text(loop)},
        clobbers=("memory",),
        count=lambda args: (
            loop.instructions(multiply_step, args[-1]) + 2 * (8 + min(2 * args[9], 3)) + 8
        ),
    )


GEMM_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item for item in map(_product, DOT_PRODUCT_LOOPS)
}
