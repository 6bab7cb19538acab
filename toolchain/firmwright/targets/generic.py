"""Targets without instructions of their own: portable C99, the host, scalar RISC-V.

`rvm`: RISC-V's integer multiply.
"""

from __future__ import annotations

from firmwright.targets.kind import AttrSpec, TargetKind

C = TargetKind("c", "portable C99 for any core")
HOST = TargetKind("host", "portable C99 for the machine that compiles")
RISCV32 = TargetKind(
    "riscv32",
    "32-bit RISC-V with multiply (RV32IM and up)",
    {"march": AttrSpec("rv32imac", "the instruction set", ("rv32im", "rv32imc", "rv32imac"))},
    lambda target: frozenset({"rvm"}),
)
