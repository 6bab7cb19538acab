"""The families of cores that have kernels, and the emulated board of each."""

from __future__ import annotations

from collections.abc import Mapping

TARGETS = (
    "c",
    "cortex-m -mcpu=cortex-m0",
    "cortex-m -mcpu=cortex-m3",
    "cortex-m -mcpu=cortex-m4",
    "cortex-m -mcpu=cortex-m55",
    "riscv32 -march=rv32imac",
    "riscv32 -march=rv32imac_zve32x",
    "riscv32 -march=rv32imafdc_zve32f",
    "riscv32 -march=rv32imacp",
    "xtensa -mcpu=lx106",
)
"""One target per feature set: M7 and M33 use the kernels of M4, M85 those of M55."""

BOARDS: Mapping[str, str] = {
    "microbit": "cortex-m -mcpu=cortex-m0",
    "mps2-an385": "cortex-m -mcpu=cortex-m3",
    "mps2-an386": "cortex-m -mcpu=cortex-m4",
    "mps3-an547": "cortex-m -mcpu=cortex-m55",
    "qemu-riscv32-virt": "riscv32 -march=rv32imac",
    "qemu-riscv32-virt-v": "riscv32 -march=rv32imac_zve32x",
    "qemu-riscv32-virt-vf": "riscv32 -march=rv32imafdc_zve32f",
    "qemu-xtensa-lx106": "xtensa -mcpu=lx106",
}
