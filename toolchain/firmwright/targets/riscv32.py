"""Scalar 32-bit RISC-V; the feature `rvm` is its integer multiply."""

from firmwright.targets.target_kind import TargetAttribute, TargetKind

KIND = TargetKind(
    "riscv32",
    "32-bit RISC-V with multiply (RV32IM and up)",
    {
        "march": TargetAttribute(
            "rv32imac", "the instruction set", ("rv32im", "rv32imc", "rv32imac")
        )
    },
    lambda target: frozenset({"rvm"}),
)
