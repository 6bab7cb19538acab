"""Arm Cortex-M cores and the features of their instruction sets.

`dsp`: SIMD-in-register instructions of Armv7E-M and of Armv8-M with the DSP extension. `mve`:
Helium; `mvefp`: its float vectors. `fpu`: single precision in hardware. `vmla`: VMLA takes no
longer than VMUL and VADD, which does not hold on Cortex-M4. `mla`: Armv7-M or Armv8-M without DSP
extension. `thumb1`: Armv6-M, without a 32-bit high multiply and with few registers. Source: the
architecture reference manuals.
"""

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
