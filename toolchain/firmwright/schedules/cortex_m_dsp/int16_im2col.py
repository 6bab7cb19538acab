"""int16 GEMM (schedules/int16_im2col.py) on the DSP extension, by dual multiply-accumulate.

A word holds four weights of a channel, which SXTB16 widens once for both pixels.
"""

from functools import partial

from firmwright.base.dtypes import INT32, UINT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ops.kernel import Kernel, Nest
from firmwright.schedules import int16_im2col
from firmwright.schedules.cortex_m_dsp.direct_dot_products import HALVES, TAPS, pack_weight_words
from firmwright.schedules.schedule_factories import dsp_schedule


class _DualMac:
    """Multiplies four taps: two words of the column by one word of weights."""

    @property
    def taps(self) -> int:
        return TAPS

    @property
    def dtype(self) -> DType:
        return UINT32

    def weights(self, b: Kernel, flat: Array, rows: int) -> tir.Buffer:
        words = pack_weight_words(flat[:, None, None], rows, is_wide=True)
        return b.constant("weights", words[:, 0, 0], UINT32)

    def add(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: tir.Buffer,
        weights: tir.Buffer,
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:
        (group, step), pixels, rows = at, columns.shape[0], weights.shape[2]
        with Nest() as enter:
            pairs = [
                [
                    enter(b.let("x", b.load(columns, [pixel, step, half])))
                    for half in range(len(HALVES))
                ]
                for pixel in range(pixels)
            ]
            for row in range(rows):
                word = enter(b.let("w", b.load(weights, [group, step, row])))
                for half, name in enumerate(HALVES):
                    with b.let("spread", call_intrinsic(name, [word], UINT32)) as spread:
                        for pixel in range(pixels):
                            at_sum = [pixel * rows + row]
                            operands = [pairs[pixel][half], spread, b.load(acc, at_sum)]
                            b.store(acc, at_sum, call_intrinsic("smlad", operands, INT32))


SCHEDULES = tuple(
    dsp_schedule(
        f"dsp.{op}.int16_im2col",
        op,
        configs=int16_im2col.int16_gemm_configs,
        build=partial(int16_im2col.build_int16_gemm, _DualMac()),
    )
    for op in ("conv2d", "fully_connected")
)
