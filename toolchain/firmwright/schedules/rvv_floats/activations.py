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
    """Apply the activation to a variable; the number `activation` is its code."""
    row = partial(riscv_row, lanes, FLOAT32)
    code = k.number("activation")
    is_pair = k(equal, code, ACTIVATION_CODES["relu_n1_to_1"])

    def bound(of_pair: int, of_others: int) -> VirtualRegister:
        numbers = k(whole_float, of_pair), k(whole_float, of_others)
        return k(either, is_pair, *numbers)

    with k.when(k(greater, code, 0)):
        k(row("vfmax_vf"), value, bound(-1, 0), into=value)
    with k.when(k(greater, code, 1)):
        k(row("vfmin_vf"), value, bound(1, 6), into=value)
    return value
