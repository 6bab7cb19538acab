"""Kinds of cores and the features of their instruction sets.

`dsp`: SIMD instructions of Armv7E-M, Armv7-R and Armv8-M with the DSP extension.
`mve`: Helium; `mvefp`: its float vectors. `fpu`: single precision in hardware. `vmla`:
VMLA takes no longer than VMUL and VADD, which does not hold on Cortex-M4. `mla`:
Armv7-M or Armv8-M without DSP extension. `thumb1`: Armv6-M, without a 32-bit high
multiply and with few registers. `rvm`: integer multiply of RISC-V; `rvp`: packed SIMD
of the draft "P";
`rvv`: its integer vectors (Zve32x); `rvvf`: its float vectors (Zve32f). `softfloat`: no
float instructions, which of RISC-V `fpu` are those of F.
`xtensa`: cores of the LX family with multiplication of 16 bits and without windows of
registers; `lx6` is that of the ESP32, and serves for the LX7 of the ESP32-S3, too.
`offsets`: loads with wide offsets, which unrolled loops use.
Source: the architecture reference manuals.
"""

from collections.abc import Mapping

from firmwright.targets.target_kind import TargetAttribute, TargetKind

_DSP = {"thumb2", "offsets", "mulh", "dsp", "fpu"}
_HELIUM = {*_DSP, "vmla", "mve", "mvefp"}
_CORTEX_M: Mapping[str, frozenset[str]] = {
    "cortex-m0": frozenset({"thumb1"}),
    "cortex-m0plus": frozenset({"thumb1"}),
    "cortex-m3": frozenset({"thumb2", "offsets", "mulh", "mla"}),
    "cortex-m4": frozenset(_DSP),
    "cortex-m7": frozenset({*_DSP, "vmla"}),
    "cortex-m23": frozenset({"thumb1"}),
    "cortex-m33": frozenset({*_DSP, "vmla"}),
    # No FPU either.
    "cortex-m33+nodsp": frozenset({"thumb2", "offsets", "mulh", "mla"}),
    "cortex-m52": frozenset(_HELIUM),
    "cortex-m55": frozenset(_HELIUM),
    "cortex-m85": frozenset(_HELIUM),
}
_CORTEX_R: Mapping[str, frozenset[str]] = {"cortex-r5": frozenset(_DSP)}
_RVM = frozenset({"rvm", "offsets"})
_RV32: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("rv32im", "rv32imc", "rv32imac"), _RVM | {"softfloat"}),
    "rv32imacp": _RVM | {"softfloat", "rvp"},
    "rv32imac_zve32x": _RVM | {"softfloat", "rvv"},
    "rv32imafdc_zve32f": _RVM | {"fpu", "rvv", "rvvf"},
}
_XTENSA: Mapping[str, frozenset[str]] = {
    "lx106": frozenset({"xtensa"}),
    "lx6": frozenset({"xtensa"}),
}

_CORE = TargetAttribute("cortex-m4", "the core", tuple(_CORTEX_M))
_CORTEX_R_CORE = TargetAttribute("cortex-r5", "the core", tuple(_CORTEX_R))
_RISCV_SET = TargetAttribute("rv32imac", "the instruction set", tuple(_RV32))
_RISCV_CORE = TargetAttribute(
    "", "the core, if its timing is known", ("sifive-e31", "esp32-c3")
)
_XTENSA_CORE = TargetAttribute("lx106", "the core", tuple(_XTENSA))

CORE_KINDS: Mapping[str, TargetKind] = {
    "host": TargetKind("host", "portable C99 for the machine that compiles"),
    "c": TargetKind("c", "portable C99 for any core"),
    "cortex-m": TargetKind(
        "cortex-m",
        "Arm Cortex-M microcontrollers",
        {"mcpu": _CORE},
        lambda target: _CORTEX_M[str(target.attr("mcpu", "cortex-m4"))],
    ),
    "cortex-r": TargetKind(
        "cortex-r",
        "Arm Cortex-R of Armv7-R, in Thumb state",
        {"mcpu": _CORTEX_R_CORE},
        lambda target: _CORTEX_R[str(target.attr("mcpu", "cortex-r5"))],
    ),
    "riscv32": TargetKind(
        "riscv32",
        "32-bit RISC-V with multiply (RV32IM and up)",
        {"march": _RISCV_SET, "mcpu": _RISCV_CORE},
        lambda target: _RV32[str(target.attr("march", "rv32imac"))],
    ),
    "xtensa": TargetKind(
        "xtensa",
        "Xtensa microcontrollers, such as the ESP8266 and ESP32",
        {"mcpu": _XTENSA_CORE},
        lambda target: _XTENSA[str(target.attr("mcpu", "lx106"))],
    ),
}
"""Kinds of cores by name."""
