"""The default loops of operators on RISC-V vectors."""

from firmwright.kernels.rvv_loops import RISCV
from firmwright.schedules.vector_loops import vector_loop_schedules

SCHEDULES = tuple(vector_loop_schedules("rvv", RISCV))
