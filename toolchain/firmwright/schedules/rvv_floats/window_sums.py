"""float32 windows of pixels times weights on RISC-V vectors: channels in lanes.

Products are summed in the order of the default loops, beginning at 0; then the bias is
added and the activation applied. Weights are [tap, channel], so that nothing depends on
the length of a vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, UINT16, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import register_group, riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import bias_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.helium_floats.accumulate_f32 import (
    PORTABLE_ACCUMULATE,
    AccumulateStyle,
    accumulate,
    activation_code,
    activation_instructions,
    apply_activation,
    emit_scalar_activation,
)
from firmwright.schedules.rvv.endings import pixel_sums
from firmwright.schedules.rvv.window_kernel import STEPS, WindowCall
from firmwright.schedules.rvv_floats.activations import activate_lanes

_C = read_sections(__file__)
_REGISTERS = 32
_LANES_OF_REGISTER = 4
"""Lanes of a register of 128 bits, which the cost model assumes."""


@dataclass(frozen=True, slots=True)
class WindowSums:
    """The micro-kernel of some pixels, for all channels.

    All channels read the same inputs, or with `by_channel` their own, or with `gathers`
    those at the offsets in bytes of the table `o`.
    """

    style: AccumulateStyle
    pixels: int
    by_channel: bool = False
    gathers: bool = False

    @property
    def name(self) -> str:
        kind = "depthwise" if self.by_channel else "dot"
        gather = "_gather" if self.gathers else ""
        return f"rvv_{kind}_f32{gather}_{self.style}_{self.pixels}"

    @property
    def groups(self) -> int:
        """The vectors that are alive: sums, weights, inputs, a product and offsets."""
        others = self.by_channel + (self.style == "separate") + self.gathers
        return self.pixels + 1 + others

    @property
    def lmul(self) -> int:
        """The registers of a vector."""
        return max(each for each in (2, 4, 8) if each * self.groups <= _REGISTERS)

    @property
    def lanes(self) -> int:
        return _LANES_OF_REGISTER * self.lmul

    def instructions(self, rows: int, columns: int, channels: int, code: int) -> int:
        """Return the instructions for all channels with vectors of 128 bits."""
        product = 3 if self.style == "separate" else 2
        tap = 3 + self.pixels * (product + self.by_channel)
        ending = self.pixels * (4 + activation_instructions(code))
        block = 10 + self.gathers + ending + rows * (6 + columns * tap)
        return divide_up(channels, self.lanes) * block

    # ---- the text --------------------------------------------------------------------

    def text(self) -> str:
        group = register_group(FLOAT32, self.lanes).removeprefix(FLOAT32.short)
        names = [name for name, _ in pixel_sums(self.pixels)]
        zero = f"__riscv_vfmv_v_f_f32{group}(0.0f, vl)"
        starts = [f"vfloat32{group}_t {name} = {zero};" for name in names]
        if self.pixels == 1:
            starts.append("(void)pixel_step;")
        if not self.by_channel:
            starts.append("(void)column_step;")
        if self.gathers:
            offsets = register_group(UINT16, self.lanes).removeprefix(UINT16.short)
            starts.append(fill_text(_C["offsets"].strip(), m=offsets))
        kept = ", ".join(f'"+vr"({name})' for name in names)
        return fill_text(
            _C["text"],
            m=group,
            start=indent("\n".join(starts), " " * 4),
            tap=indent(self._tap(), " " * 12),
            sums=kept,
            at=" + at" if self.by_channel and not self.gathers else "",
            step="column_step" if self.by_channel else "1",
            finish=indent(self._ending(), " " * 4),
        )

    def _sums(self, k: VectorBuilder) -> list[VirtualRegister]:
        place = RegisterPlace(RegisterClass.VECTOR, FLOAT32, self.lanes)
        return [k.variable(name, place) for name, _ in pixel_sums(self.pixels)]

    def _tap(self) -> str:
        k, row = VectorBuilder("tap"), partial(riscv_row, self.lanes, FLOAT32)
        form = "vv" if self.by_channel else "vf"
        tap = k.named("tap", row("vle32_v"), k.pointer("weight", FLOAT32)[0])
        index = RegisterPlace(RegisterClass.VECTOR, UINT16, self.lanes)
        for p, total in enumerate(self._sums(k)):
            place = f"value + {p} * pixel_step" if p else "value"
            if self.gathers:
                offsets = k.variable("offsets", index)
                x = k(row("vluxei16_v"), k.pointer(place, FLOAT32)[0], offsets)
            elif self.by_channel:
                x = k(row("vle32_v"), k.pointer(place, FLOAT32)[0])
            else:
                text = f"value[{p} * pixel_step]" if p else "value[0]"
                x = k.number(text, FLOAT32)
            if self.style == "fused":
                k(row(f"vfmacc_{form}"), total, x, tap, into=total)
            else:
                product = k(row(f"vfmul_{form}"), tap, x)
                k(row("vfadd_vv"), total, product, into=total)
        return vector_text(k.build_vectors())

    def _ending(self) -> str:
        k, row = VectorBuilder("ending"), partial(riscv_row, self.lanes, FLOAT32)
        bias = k.named("biases", row("vle32_v"), k.pointer("bias + at", FLOAT32)[0])
        targets = [target for _, target in pixel_sums(self.pixels)]
        for total, target in zip(self._sums(k), targets, strict=True):
            k(row("vfadd_vv"), total, bias, into=total)
            activate_lanes(self.lanes, k, total)
            k.store(row("vse32_v"), k.pointer(target, FLOAT32, "w")[0], total)
        return vector_text(k.build_vectors())

    # ---- the specification -----------------------------------------------------------

    def meaning(self, w: Array, x: Array, bias: Array, *rest: Array) -> Array:
        """Return the outputs [pixel * channel, ...]."""
        numbers = map(int, rest[1 + self.gathers :])
        pixel_step, rows, columns, row_step, column_step, channels, code = numbers
        values = np.reshape(np.asarray(x, np.float32), (len(x), -1))
        weights = np.asarray(w, np.float32)[: rows * columns * channels]
        by_tap = weights.reshape(rows * columns, channels, -1)
        lanes = np.arange(channels if self.by_channel else 1)
        if self.gathers:
            offsets = np.asarray(rest[0])[:channels]
            lanes = offsets.reshape(channels, -1)[:, 0] // FLOAT32.size_bytes
        corners = np.arange(self.pixels)[:, None] * pixel_step + lanes
        sums = np.zeros((self.pixels, channels, values.shape[1]), np.float32)
        with np.errstate(all="ignore"):
            for tap in range(rows * columns):
                at = tap // columns * row_step + tap % columns * column_step
                sums = accumulate(self.style, sums, values[corners + at], by_tap[tap])
            biases = np.asarray(bias, np.float32)[:channels].reshape(channels, -1)
            totals = apply_activation(sums + biases, code)
        return totals.reshape(-1, *np.shape(x)[1:])

    def portable(self) -> str:
        x = "x[from + c]" if self.by_channel else "x[from]"
        if self.gathers:
            x = "x[from + o[c] / 4]"
        w = "w[(i * columns + j) * channels + c]"
        term = PORTABLE_ACCUMULATE[self.style].format(x=x, w=w, total="sum")
        limit = indent(emit_scalar_activation("sum"), " " * 8)
        return fill_text(_C["portable"], pixels=self.pixels, term=term, limit=limit)

    def intrinsic(self) -> Intrinsic:
        return Intrinsic(
            self.name,
            (
                *pointers(FLOAT32, w=1, x=1, bias=1),
                *(pointers(UINT16, o=1) if self.gathers else ()),
                *pointers(FLOAT32, "w", y=self.pixels),
                *immediates(*STEPS, "activation"),
            ),
            self.meaning,
            self.portable(),
            "Products of windows and the weights of all channels, with a bias.",
            requires="rvvf",
            text={"gnu": self.text()},
            count=self._count,
        )

    def _count(self, args: Sequence[int]) -> int:
        numbers = args[4 + self.gathers :]
        return self.instructions(numbers[1], numbers[2], numbers[5], numbers[6])


def window_call(
    op: OpCall,
    b: Kernel,
    sums: WindowSums,
    flat: Array,
    repeats: int = 1,
    offsets: Array | None = None,
) -> WindowCall:
    """Return the call for weights `flat` [channel, tap], and inputs at `offsets`."""
    weights = b.constant("weights", np.tile(flat.T, repeats), FLOAT32)
    tables = [b.constant("bias", np.tile(bias_of(op, "float32"), repeats), FLOAT32)]
    if offsets is not None:
        tables.append(b.constant("offsets", offsets, UINT16))
    settings = (activation_code(op),)
    return WindowCall(sums.name, sums.pixels, weights, tuple(tables), settings)


def cheapest(
    kernels: Sequence[WindowSums], shape: tuple[int, int, int], pixels: int
) -> WindowSums:
    """Return the micro-kernel with the fewest instructions for `pixels` pixels.

    `shape` is the rows and columns of a window, and the channels.
    """

    def cost(sums: WindowSums) -> int:
        return divide_up(pixels, sums.pixels) * sums.instructions(*shape, 0)

    return min((sums for sums in kernels if sums.pixels <= pixels), key=cost)
