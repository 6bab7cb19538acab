"""Functions of one int8 on Helium: a gather looks up sixteen bytes in a table."""

from firmwright.kernels.elementwise import helium_text
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.byte_tables import ByteTables

_TABLES = ByteTables(
    "mve",
    "mve",
    MVE_MEMORY.rows["vldrbq_gather_offset_u8"],
    helium_text,
    lanes=16,
    instructions=5,
    macros=(KEEP_STORES,),
)
LOOKUP = _TABLES.intrinsic()
INTRINSICS = (LOOKUP,)
SCHEDULES = _TABLES.schedules("helium")
