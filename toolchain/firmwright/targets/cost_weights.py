"""Cost model weights: instructions, cycles and code bytes per kind of work."""

from collections.abc import Mapping
from types import MappingProxyType

from firmwright.ir.core import Target
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights
from firmwright.targets.registry import target_features

# The kinds of work are those of the TIR operation count. Weights are fitted, within bounds given by
# the instruction set, to exact instruction counts of images compiled by gcc: every schedule for
# generated layers (bench/layers.py) and for the layers of five benchmark models. Cycle weights are
# fitted to the same counts weighted by core_timing.py. The RISC-V `lookup` weight is taken from the
# code: it includes address arithmetic and the index load; on Thumb the fit shows no such cost.
#
# Cortex-M7 and M33 use the weights of the M4: over 366 and 196 kernels the median error is 2.9 and
# 3.1 percent (M4: 2.5 over 661). Armv6-M weights come from Cortex-M0 code counted on an M3 with
# sufficient memory: 320 kernels, 3.6 percent median (5.4 over 77 not used in the fit); M0+ and M23
# use them too. High multiplies (`smmla`, `requantize_exact`) are many instructions there and have
# their own weights. Armv6-M has no cycle weights: choosing by instructions costs 0.2 percent more
# cycles on average. `firmwright bench --predict` shows the errors.

# fmt: off
_DSP: Mapping[str, float] = {
    "accessed": 0.1, "alu": 0.82, "block": 2.13, "branch": 1.51, "call": 10.8,
    "clamp": 1.61, "clip": 7.49, "clz": 16.92, "compare": 2.16, "divide": 1.66,
    "divide_fixed": 4.0, "entry": 3.13, "index": 0.11, "intrinsic": 0.97, "load": 0.88,
    "lookup": 0.0, "loop": 2.16, "move": 0.0, "multiply": 0.74, "multiply_add": 1.22,
    "reciprocal": 103.0, "requantize_once": 6.03, "requantize_twice": 21.4, "row": 0.6,
    "saturate": 1.63, "select": 2.28, "shift": 0.36, "shift_by": 1.45, "short_loop": 0.22,
    "spill": 0.8, "store": 2.03, "window": 0.22,
}
_DSP_CODE: Mapping[str, float] = {
    "accessed": 0.0, "alu": 2.1, "block": 10.6, "branch": 6.1, "call": 7.5, "clamp": 0.6,
    "clip": 19.6, "clz": 3.3, "compare": 7.1, "divide": 2.0, "divide_fixed": 0.0,
    "entry": 12.2, "index": 0.7, "intrinsic": 4.0, "load": 3.9, "lookup": 0.0, "loop": 22.6,
    "move": 0.0, "multiply": 3.7, "multiply_add": 4.1, "reciprocal": 119.4,
    "requantize_once": 0.0, "requantize_twice": 80.0, "row": 0.0, "saturate": 6.2,
    "select": 1.3, "shift": 1.6, "shift_by": 1.4, "short_loop": 3.6, "spill": 3.8,
    "store": 4.3, "window": 0.4,
}

_THUMB: Mapping[str, float] = {
    "accessed": 0.0, "alu": 0.71, "block": 2.1, "branch": 1.1, "call": 9.49, "clamp": 1.44,
    "clip": 6.33, "clz": 17.03, "compare": 1.33, "divide": 1.78, "divide_fixed": 3.8,
    "entry": 5.38, "index": 0.25, "intrinsic": 1.0, "load": 1.19, "lookup": 0.0,
    "loop": 1.74, "move": 0.52, "multiply": 1.02, "multiply_add": 0.98,
    "reciprocal": 105.86, "requantize_once": 2.79, "requantize_twice": 21.65, "row": 0.0,
    "saturate": 2.1, "select": 2.5, "shift": 0.39, "shift_by": 1.51, "short_loop": 0.0,
    "spill": 0.98, "store": 1.17, "window": 0.3,
}
_THUMB_CODE: Mapping[str, float] = {
    "accessed": 0.1, "alu": 2.5, "block": 25.0, "branch": 7.3, "call": 5.6, "clamp": 0.0,
    "clip": 24.2, "clz": 3.3, "compare": 6.8, "divide": 0.4, "divide_fixed": 0.0,
    "entry": 11.7, "index": 2.0, "intrinsic": 10.1, "line": 7.5, "load": 4.2, "lookup": 0.0,
    "loop": 21.3, "move": 0.0, "multiply": 3.2, "multiply_add": 1.6, "reciprocal": 123.3,
    "requantize_once": 0.0, "requantize_twice": 80.0, "row": 0.0, "saturate": 13.4,
    "select": 0.0, "shift": 2.2, "shift_by": 1.9, "short_loop": 3.6, "spill": 8.4,
    "store": 1.5, "window": 1.1,
}

_THUMB1: Mapping[str, float] = {
    "accessed": 0.0, "alu": 0.6, "block": 0.32, "branch": 2.08, "call": 5.0, "clamp": 1.24,
    "clip": 2.0, "clz": 40.0, "compare": 0.5, "divide": 10.0, "divide_fixed": 35.21,
    "entry": 19.45, "index": 0.41, "intrinsic": 1.01, "load": 1.35, "lookup": 2.0,
    "loop": 1.0, "move": 0.0, "multiply": 13.93, "multiply_add": 3.72, "reciprocal": 450.1,
    "requantize_exact": 78.91, "requantize_once": 20.11, "requantize_twice": 74.58,
    "row": 0.0, "saturate": 2.21, "select": 2.0, "shift": 4.0, "shift_by": 8.0,
    "short_loop": 0.0, "smmla": 21.62, "spill": 0.5, "store": 3.69, "window": 1.75,
}
_THUMB1_CODE: Mapping[str, float] = {
    "accessed": 0.0, "alu": 1.0, "block": 55.7, "branch": 22.3, "call": 0.0, "clamp": 4.0,
    "clip": 31.3, "clz": 4.7, "compare": 0.0, "divide": 0.0, "divide_fixed": 0.0,
    "entry": 12.8, "index": 0.0, "intrinsic": 10.1, "line": 1.7, "load": 7.0,
    "lookup": 0.6, "loop": 23.4, "move": 0.0, "multiply": 2.4, "multiply_add": 3.8,
    "reciprocal": 207.0, "requantize_exact": 54.0, "requantize_once": 0.0,
    "requantize_twice": 122.2, "row": 0.0, "saturate": 34.7, "select": 0.0, "shift": 9.5,
    "shift_by": 8.2, "short_loop": 13.0, "smmla": 29.0, "spill": 7.3, "store": 1.0,
    "window": 0.0,
}

_HELIUM: Mapping[str, float] = {
    "accessed": 0.0, "alu": 0.75, "block": 1.1, "branch": 1.56, "call": 3.05, "clamp": 1.16,
    "clip": 6.36, "clz": 17.49, "compare": 1.74, "divide": 1.53, "divide_fixed": 0.41,
    "entry": 4.18, "index": 0.43, "intrinsic": 1.02, "load": 0.88, "lookup": 0.0,
    "loop": 1.17, "move": 0.46, "multiply": 0.83, "multiply_add": 1.28,
    "reciprocal": 117.25, "requantize_once": 5.42, "requantize_twice": 25.48, "row": 0.0,
    "saturate": 0.74, "select": 0.14, "shift": 0.34, "shift_by": 2.1, "short_loop": 0.14,
    "spill": 0.46, "store": 3.12, "window": 0.27,
}
_HELIUM_CODE: Mapping[str, float] = {
    "accessed": 0.0, "alu": 3.5, "block": 4.2, "branch": 4.4, "call": 0.0, "clamp": 0.0,
    "clip": 20.7, "clz": 3.4, "compare": 5.4, "divide": 2.1, "divide_fixed": 1.7,
    "entry": 15.9, "index": 0.8, "intrinsic": 4.7, "line": 3.4, "load": 3.5, "lookup": 0.0,
    "loop": 24.0, "move": 0.0, "multiply": 2.6, "multiply_add": 5.0, "reciprocal": 158.1,
    "requantize_once": 9.0, "requantize_twice": 80.0, "row": 0.0, "saturate": 7.1,
    "select": 7.1, "shift": 0.8, "shift_by": 0.5, "short_loop": 3.4, "spill": 1.6,
    "store": 4.9, "window": 0.7,
}

_RISCV: Mapping[str, float] = {
    "accessed": 0.0, "alu": 1.0, "block": 1.98, "branch": 1.59, "call": 14.17, "clamp": 4.0,
    "clz": 27.18, "compare": 1.95, "divide": 1.13, "divide_fixed": 2.31, "entry": 0.0,
    "index": 0.0, "intrinsic": 1.0, "load": 1.24, "lookup": 3.2, "loop": 2.51, "move": 0.0,
    "multiply": 1.59, "multiply_add": 1.84, "reciprocal": 120.0, "requantize_once": 11.84,
    "requantize_twice": 26.83, "row": 0.0, "saturate": 3.44, "select": 1.34, "shift": 0.63,
    "shift_by": 1.98, "short_loop": 0.8, "spill": 1.5, "store": 1.57, "window": 0.24,
}
_RISCV_CODE: Mapping[str, float] = {
    "accessed": 0.0, "alu": 3.9, "block": 11.7, "branch": 6.8, "call": 1.9, "clamp": 4.6,
    "clz": 3.4, "compare": 5.4, "divide": 0.5, "divide_fixed": 0.0, "entry": 14.7,
    "index": 1.3, "intrinsic": 10.1, "line": 5.9, "load": 4.8, "lookup": 8.0, "loop": 24.0,
    "move": 0.0, "multiply": 2.7, "multiply_add": 4.3, "reciprocal": 193.8,
    "requantize_once": 0.0, "requantize_twice": 80.0, "row": 0.0, "saturate": 23.1,
    "select": 0.0, "shift": 1.9, "shift_by": 4.6, "short_loop": 3.0, "spill": 4.9,
    "store": 3.0, "window": 1.0,
}

_CYCLES: Mapping[str, Mapping[str, float]] = MappingProxyType({
    "cortex-m4": {
        "accessed": 0.77, "alu": 0.9, "block": 2.86, "branch": 3.14, "call": 13.58,
        "clamp": 1.66, "clip": 8.11, "clz": 22.61, "compare": 1.9, "divide": 2.26,
        "divide_fixed": 6.0, "entry": 4.29, "index": 0.15, "intrinsic": 1.09, "load": 1.36,
        "lookup": 0.0, "loop": 3.98, "move": 0.0, "multiply": 0.63, "multiply_add": 1.38,
        "reciprocal": 133.34, "requantize_once": 10.52, "requantize_twice": 24.69,
        "row": 0.6, "saturate": 2.04, "select": 3.12, "shift": 0.42, "shift_by": 2.14,
        "short_loop": 0.29, "spill": 1.21, "store": 2.32, "window": 0.27,
    },
    "cortex-m3": {
        "accessed": 0.02, "alu": 0.78, "block": 2.81, "branch": 2.03, "call": 14.84,
        "clamp": 1.01, "clip": 7.97, "clz": 23.53, "compare": 1.19, "divide": 2.31,
        "divide_fixed": 4.93, "entry": 6.72, "index": 0.23, "intrinsic": 1.27, "load": 1.79,
        "lookup": 0.0, "loop": 3.42, "move": 0.72, "multiply": 1.22, "multiply_add": 1.01,
        "reciprocal": 156.23, "requantize_once": 3.62, "requantize_twice": 25.19,
        "row": 0.0, "saturate": 3.67, "select": 3.2, "shift": 0.57, "shift_by": 2.75,
        "short_loop": 0.05, "spill": 1.58, "store": 1.88, "window": 0.34,
    },
})
# fmt: on

_RISCV_REGISTERS = 20
_THUMB1_REGISTERS = 5
"""Registers available besides operands; only eight of the sixteen do arithmetic or addressing."""


def cost_weights_for(target: Target | None) -> CostWeights:
    """Return the weights for a target, or generic ones if its family was not measured."""
    if target is None or target.kind not in ("cortex-m", "riscv32"):
        return GENERIC_WEIGHTS
    if target.kind == "riscv32":
        return CostWeights("riscv32", _RISCV, {}, _RISCV_CODE, _RISCV_REGISTERS)
    cycles, has = _CYCLES.get(str(target.attr("mcpu")), {}), target_features(target)
    if "mve" in has:
        return CostWeights("cortex-m with Helium", _HELIUM, cycles, _HELIUM_CODE)
    if "dsp" in has:
        return CostWeights("cortex-m with DSP", _DSP, cycles, _DSP_CODE)
    if "thumb1" in has:
        return CostWeights("Armv6-M", _THUMB1, cycles, _THUMB1_CODE, _THUMB1_REGISTERS)
    return CostWeights("cortex-m without DSP", _THUMB, cycles, _THUMB_CODE)
