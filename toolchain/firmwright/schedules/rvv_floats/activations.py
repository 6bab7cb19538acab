"""Activations of floats on RISC-V vectors."""

from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.kernels.isa.c_numbers import either, equal, greater, whole_float
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.helium_floats.accumulate_f32 import ACTIVATION_CODES


def activate_lanes(
    lanes: int, k: VectorBuilder, value: VirtualRegister
) -> VirtualRegister:
    """Apply the activation to the result of arithmetic, in a variable.

    The number `activation` is its code. NaN stays; VFMAX and VFMIN would replace it.
    """
    row = partial(riscv_row, lanes, FLOAT32)
    code = k.number("activation")
    is_pair = k(equal, code, ACTIVATION_CODES["relu_n1_to_1"])

    with k.when(is_pair):
        k(row("vmflt_limit"), value, k(whole_float, -1), into=value)
    with k.otherwise(), k.when(k(greater, code, 0)):
        k(row("relu"), value, into=value)
    with k.when(k(greater, code, 1)):
        most = k(either, is_pair, k(whole_float, 1), k(whole_float, 6))
        k(row("vmfgt_limit"), value, most, into=value)
    return value
