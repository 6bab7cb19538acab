"""float32 max_pool2d with an FPU: the taps of several channels by multiple loads."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, pointers
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv_window import output_positions
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import pool_window
from firmwright.schedules.asm_macros import string_lines

_LANES, _TAPS_MAX = 8, 9
_C = read_sections(__file__)


def _configs(op: OpCall) -> Sequence[Config]:
    window = pool_window(op)
    plain = op.input(0).dtype == FLOAT32 and op.str_attr("activation") == "none"
    is_inside = not window.guarded(0) and not window.guarded(1)
    return ({},) if plain and is_inside and 1 < np.prod(window.size) <= _TAPS_MAX else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    window, (_, rows, cols, channels) = pool_window(op), op.input(0).shape
    taps = [(ky * cols + kx) * channels for ky, kx in np.ndindex(window.size)]
    with output_positions(b, op.output.shape) as at:
        pixel = (at.n * rows + at.oy * window.stride[0]) * cols + at.ox * window.stride[1]
        place = ((at.n * b.y.shape[1] + at.oy) * b.y.shape[2] + at.ox) * channels
        rest = channels % _LANES
        for first, count, lanes in ((0, channels // _LANES, _LANES), (channels - rest, 1, rest)):
            if count and lanes:
                with b.for_("block", count) as block:
                    x = b.let("x", pixel * channels + (block * lanes + first))
                    y = b.let("y", place + (block * lanes + first))
                    a, *others = [b.pointer(b.input(0), x + tap, lanes) for tap in taps]
                    for other in others:
                        b.evaluate(f"max_f32_{lanes}", [b.pointer(b.y, y, lanes, "w"), a, other])
                        a = b.pointer(b.y, y, lanes)


def _maximum(lanes: int) -> Intrinsic:
    lines = [f"vldm %[a], {{s16-s{15 + lanes}}}", f"vldm %[b], {{s24-s{23 + lanes}}}"]
    for lane in range(lanes):
        a, b = f"s{16 + lane}", f"s{24 + lane}"
        lines += [f"vcmp.f32 {a}, {b}", "vmrs APSR_nzcv, FPSCR", "it mi", f"vmovmi.f32 {a}, {b}"]
    lines.append(f"vstm %[y], {{s16-s{15 + lanes}}}")
    return Intrinsic(
        f"max_f32_{lanes}",
        (*pointers(FLOAT32, "w", y=lanes), *pointers(FLOAT32, a=lanes, b=lanes)),
        meaning=lambda y, a, b: np.where(np.less(a, b), b, a),
        portable=fill_text(_C["portable"], lanes=lanes),
        doc=f"The larger of {lanes} pairs.",
        requires="fpu",
        text={"gnu": fill_text(_C["fpu"], lines="\n".join(string_lines(lines)))},
        instructions=3 + 4 * lanes,
    )


INTRINSICS = tuple(map(_maximum, range(1, _LANES + 1)))
SCHEDULES = (Schedule("fpu.max_pool2d.lanes", "max_pool2d", frozenset({"fpu"}), _configs, _build),)
