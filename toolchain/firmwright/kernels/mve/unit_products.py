"""Dot products of adjacent rows, each with weights of its own, on Helium.

A row of the eight has `size` elements, a multiple of eight: VMLADAV adds the products
of sixteen bytes into an even core register, and of the eight that are left as halves.
Those of int16 are all halves.

    x:  | row 0 | row 1 | row 2 | ... | row 7 |
    w:  | row 0 | row 1 | row 2 | ... | row 7 |
"""

from firmwright.base.dtypes import INT8, INT32, DType
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve import vmov_lanes_2_0, vmov_lanes_3_1
from firmwright.kernels.isa.mve_lanes import (
    vmladavaq_s8,
    vmladavaq_s16,
    vmladavq_s8,
    vmladavq_s16,
)
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import Program
from firmwright.kernels.program_builder import ProgramBuilder

ROWS = 8
HALVES = 8
"""The elements of a vector of halves, of which a row has a multiple."""
_BYTES = 16


def unit_products(size: int, dtype: DType = INT8) -> Program:
    """Return the program that leaves the sums in the vectors `first` and `second`."""
    k = ProgramBuilder(f"unit_products_{size}")
    w, x = k.pointer("w", dtype), k.pointer("x", dtype)
    narrow = MVE_MEMORY.rows["vldrbq_s16" if dtype == INT8 else "vldrhq_s16"]
    step = _BYTES if dtype == INT8 else HALVES
    even = RegisterPlace(RegisterClass.EVEN, INT32)
    sums = [k.local(f"sum{row}", even) for row in range(ROWS)]
    for total in sums:
        for done in range(0, size, step):
            is_whole = dtype == INT8 and size - done >= _BYTES
            width = _BYTES if is_whole else HALVES
            load = MVE_MEMORY.rows["vldrbq_s8"] if is_whole else narrow
            values, weights = k(load, x.next(width)), k(load, w.next(width))
            if done:
                add = vmladavaq_s8 if is_whole else vmladavaq_s16
                k(add, total, values, weights)
            else:
                multiply = vmladavq_s8 if is_whole else vmladavq_s16
                k(multiply, values, weights, into=total)
    place = RegisterPlace(RegisterClass.VECTOR, INT32, 4)
    for number, name in enumerate(("first", "second")):
        vector = k.operand(name, place, is_output=True)
        a, b, c, d = sums[4 * number : 4 * number + 4]
        k(vmov_lanes_2_0, vector, a, c)
        k(vmov_lanes_3_1, vector, b, d)
    return k.build()
