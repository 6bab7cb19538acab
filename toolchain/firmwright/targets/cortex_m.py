"""Arm Cortex-M: cores and what their instruction sets offer.

`dsp`: the SIMD-in-register instructions of Armv7E-M and of Armv8-M with the DSP extension. `mve`:
Helium, `mvefp`: its vectors of floats. `fpu`: single precision in hardware. `vmla`: its
multiply-accumulate takes no longer than a multiplication and an addition; on the Cortex-M4 it does
(targets/core_timing.py). `mla`: Armv7-M or v8-M with none of these, one product an instruction.
`thumb1`: Armv6-M, no 32-bit multiply-high, few registers. Source: the architecture manuals.
"""

from __future__ import annotations

from firmwright.ir.core import Target
from firmwright.targets.target_kind import TargetAttribute, TargetKind

CORES: dict[str, frozenset[str]] = {
    "cortex-m0": frozenset({"thumb1"}),
    "cortex-m0plus": frozenset({"thumb1"}),
    "cortex-m3": frozenset({"thumb2", "mulh", "mla"}),
    "cortex-m4": frozenset({"thumb2", "mulh", "dsp", "fpu"}),
    "cortex-m7": frozenset({"thumb2", "mulh", "dsp", "fpu", "vmla"}),
    "cortex-m23": frozenset({"thumb1"}),
    "cortex-m33": frozenset({"thumb2", "mulh", "dsp", "fpu", "vmla"}),
    "cortex-m33+nodsp": frozenset({"thumb2", "mulh", "mla"}),  # no FPU either
    "cortex-m55": frozenset({"thumb2", "mulh", "dsp", "fpu", "vmla", "mve", "mvefp"}),
    "cortex-m85": frozenset({"thumb2", "mulh", "dsp", "fpu", "vmla", "mve", "mvefp"}),
}


def _features(target: Target) -> frozenset[str]:
    return CORES[str(target.attr("mcpu", "cortex-m4"))]


KIND = TargetKind(
    "cortex-m",
    "Arm Cortex-M microcontrollers",
    {"mcpu": TargetAttribute("cortex-m4", "the core", tuple(CORES))},
    _features,
)
