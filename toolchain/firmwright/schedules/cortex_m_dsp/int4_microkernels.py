"""GEMM micro-kernels for int4 weights as intrinsics: kernels/dsp/int4_gemm.py."""

from functools import partial

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, pointers
from firmwright.kernels.assembly import body_text, macro_definitions
from firmwright.kernels.dsp.gemm import WIDE_2X4
from firmwright.kernels.dsp.int4_gemm import (
    STEPS_MAX,
    Int4Form,
    int4_forms,
    int4_program,
)
from firmwright.kernels.portable import called_intrinsics, portable_text
from firmwright.kernels.program import instruction_count
from firmwright.kernels.program_cycles import executed_cycles
from firmwright.schedules.cortex_m_dsp.microkernels import (
    ACCUMULATORS,
    halves,
    sums_of_products,
)


def int4_sums(steps: int, w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
    """Unpack the weights to int16 and evaluate the wide micro-kernel.

    If columns have another word, the sums of both channels are separated.
    """
    words = np.asarray(w, np.uint32)
    columns = np.asarray(x, np.uint32)
    rows = []
    for half in (0, 1):
        low, high = halves(words >> np.uint32(8 * half), 8)
        rows += [(low & 15) | (high & 15) << 16, (low & 0xFFFF) | (high & 0xFFFF) << 16]
    wide = np.stack(rows, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    totals = sums_of_products(WIDE_2X4, wide, columns[: 8 * steps], *sums)
    shares = columns[8 * steps :].astype(np.int64)
    if not len(shares):
        return totals
    even = np.stack(totals[:4]).astype(np.int64)
    odd = np.stack(totals[4:]).astype(np.int64)
    results = np.concatenate([even + shares, odd - even])
    return tuple(results.astype(np.uint32).astype(np.int32))


def _intrinsic(steps: int, *, is_end: bool) -> Intrinsic:
    program = int4_program(Int4Form.NARROW, steps, has_end=is_end)
    with_float = int4_program(Int4Form.FLOAT, steps, has_end=is_end)
    separated = ", separated" * is_end
    return Intrinsic(
        name=f"int4_2x4_{steps}{'_end' if is_end else ''}",
        operands=(
            *pointers(UINT32, w=steps, x=8 * steps + 4 * is_end),
            *(Operand(name, "inout", INT32) for name in ACCUMULATORS),
        ),
        meaning=partial(int4_sums, steps),
        portable=portable_text(program),
        doc=f"{4 * steps} taps of 2 channels x 4 pixels, int4 weights{separated}.",
        requires="dsp",
        text={"gnu": body_text(int4_forms(steps, has_end=is_end))},
        # Micro-kernels with and without an end share the macros.
        definitions=macro_definitions(int4_forms(steps, has_end=True)),
        instructions=instruction_count(with_float),
        cycles=lambda core, _: executed_cycles(int4_forms(steps, has_end=is_end), core),
        calls=called_intrinsics(program),
    )


INTRINSIC_MAKERS = {
    f"int4_2x4_{steps}{'_end' if is_end else ''}": partial(
        _intrinsic, steps, is_end=is_end
    )
    for steps in range(1, STEPS_MAX + 1)
    for is_end in (False, True)
}
