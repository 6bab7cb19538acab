"""logistic and tanh of int16 on RISC-V vectors, which gather entries of a table."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import INT16, INT32, UINT16, UINT32
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import riscv_text
from firmwright.kernels.isa.c_numbers import word
from firmwright.kernels.isa.rvv import reinterpret, riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.schedule import Schedule
from firmwright.schedules.helium.logistic_tanh import (
    CURVES,
    Curve,
    build_lookup,
    lookup,
    lookup_loop,
)
from firmwright.schedules.schedule_factories import for_inputs_of

_LANES = 16
_WORDS = partial(riscv_row, _LANES, INT32)


def _entry(
    k: VectorBuilder, name: str, place: int, offsets: VirtualRegister
) -> VirtualRegister:
    """Return the entries behind `place` of the table."""
    table = k.pointer("table", UINT16)
    half = k(riscv_row(_LANES, UINT16, "vluxei32_v"), table[place], offsets)
    wide = k(riscv_row(_LANES, UINT32, "vzext_vf2"), half)
    return k.named(name, reinterpret(_LANES, UINT32, INT32), wide)


def _compute(
    curve: Curve, k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    """Interpolate between two entries of the table."""
    wide = k(_WORDS("vsext_vf2"), lanes[0])
    scaled = k(_WORDS("vmul_vx"), wide, k.number("multiplier"))
    value = k.named("value", _WORDS("vssra_vx"), scaled, k(word, k.number("shift")))
    sign = k.named("sign", _WORDS("vsra_vx"), value, 31)
    size = k(_WORDS("vsub_vv"), k(_WORDS("vxor_vv"), value, sign), sign)
    distance = k.named("distance", _WORDS("vmin_vx"), size, 255 << curve.bits)
    place = k(_WORDS("vsll_vx"), k(_WORDS("vsra_vx"), distance, curve.bits), 1)
    offsets = k.named("offsets", reinterpret(_LANES, INT32, UINT32), place)
    low = _entry(k, "low", 0, offsets)
    high = _entry(k, "high", 1, offsets)
    part = k(_WORDS("vand_vx"), distance, (1 << curve.bits) - 1)
    rise = k.named("rise", _WORDS("vmul_vv"), part, k(_WORDS("vsub_vv"), high, low))
    total = k(_WORDS("vadd_vv"), k(_WORDS("vsll_vx"), low, curve.bits), rise)
    raised = k(_WORDS("vmin_vx"), total, curve.most)
    # Below 0 it is `below` - raised, otherwise raised + `above`.
    flipped = k(_WORDS("vxor_vv"), raised, sign)
    change = k(_WORDS("vand_vx"), sign, curve.below + 1 - curve.above)
    addend = k(_WORDS("vadd_vx"), change, curve.above)
    moved = k(_WORDS("vsra_vx"), k(_WORDS("vadd_vv"), flipped, addend), curve.right)
    return k(riscv_row(_LANES, INT16, "vnclip_wx"), moved, 0)


def _lookup(op: str) -> Intrinsic:
    loop = lookup_loop(partial(_compute, CURVES[op]))
    return lookup(op, "rvv", riscv_text(loop, _LANES), (_LANES, 36))


INTRINSICS = tuple(map(_lookup, CURVES))
SCHEDULES = tuple(
    Schedule(
        f"rvv.{op}.int16",
        op,
        frozenset({"rvv"}),
        for_inputs_of(INT16),
        partial(build_lookup, family="rvv"),
    )
    for op in CURVES
)
