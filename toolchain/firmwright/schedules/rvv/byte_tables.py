"""Functions of one int8 on RISC-V vectors: bytes are gathered from a table of 256.

A conversion between scales of int8 is such a function, too.
"""

from functools import partial

from firmwright.base.dtypes import UINT8
from firmwright.kernels.elementwise import riscv_text
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.schedules.byte_tables import ByteTables

_LANES = 128
_TABLES = ByteTables(
    "rvv",
    "rvv",
    riscv_row(_LANES, UINT8, "vluxei8_v"),
    partial(riscv_text, lanes=_LANES),
    lanes=_LANES,
    instructions=8,
)
INTRINSICS = (_TABLES.intrinsic(),)
SCHEDULES = _TABLES.schedules("rvv", ("quantize",))
