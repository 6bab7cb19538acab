"""int16 columns (schedules/half_columns.py) on the DSP extension, by dual products.

Four taps of a channel are one word of weights, which SXTB16 widens once for both pixels, in the
order of bytes that dot_products.py has.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from firmwright.base.dtypes import INT32, UINT32, DType
from firmwright.ir.graph.opdef import Array
from firmwright.ir.tir.builder import E, call
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Rule
from firmwright.ops.kernel import Kernel
from firmwright.schedules import half_columns
from firmwright.schedules.cortex_m_dsp.dot_products import HALVES, TAPS, packed_words


class _Dual:
    """Four taps: two words of the column, one of the weights."""

    @property
    def taps(self) -> int:
        return TAPS

    @property
    def dtype(self) -> DType:
        return UINT32

    def weights(self, b: Kernel, flat: Array, rows: int) -> Buffer:
        words = packed_words(flat[:, None, None], rows, is_wide=True)
        return b.constant("weights", words[:, 0, 0], UINT32)

    def add(
        self, b: Kernel, acc: Buffer, columns: Buffer, weights: Buffer, at: tuple[E, E]
    ) -> None:
        (group, step), pixels, rows = at, columns.shape[0], weights.shape[2]
        with ExitStack() as stack:
            pairs = [
                [
                    stack.enter_context(b.let("x", b.load(columns, [pixel, step, half])))
                    for half in range(len(HALVES))
                ]
                for pixel in range(pixels)
            ]
            for row in range(rows):
                word = stack.enter_context(b.let("w", b.load(weights, [group, step, row])))
                for half, name in enumerate(HALVES):
                    with b.let("spread", call(name, [word], UINT32)) as spread:
                        for pixel in range(pixels):
                            at_sum = [pixel * rows + row]
                            operands = [pairs[pixel][half], spread, b.load(acc, at_sum)]
                            b.store(acc, at_sum, call("smlad", operands, INT32))


RULES = tuple(
    Rule(
        f"dsp.{op}.half_columns",
        op,
        frozenset({"dsp"}),
        half_columns.configs,
        partial(half_columns.build, _Dual()),
        keeps_order=True,
    )
    for op in ("conv2d", "fully_connected")
)
