"""Cost model weights: instructions, cycles and code bytes per kind of work."""

from collections.abc import Mapping

from firmwright.ir.core import Target
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights
from firmwright.ir.tir.op_count import REGISTERS
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
_WEIGHTS: Mapping[str, tuple[float | None, ...]] = {
    #                    Helium      DSP  Thumb-2  Armv6-M   RISC-V       M4       M3
    "accessed":         (    0.0,     0.1,     0.0,     0.0,     0.0,    0.77,    0.02),
    "alu":              (   0.75,    0.82,    0.71,     0.6,     1.0,     0.9,    0.78),
    "block":            (    1.1,    2.13,     2.1,    0.32,    1.98,    2.86,    2.81),
    "branch":           (   1.56,    1.51,     1.1,    2.08,    1.59,    3.14,    2.03),
    "call":             (   3.05,    10.8,    9.49,     5.0,   14.17,   13.58,   14.84),
    "clamp":            (   1.16,    1.61,    1.44,    1.24,     4.0,    1.66,    1.01),
    "clip":             (   6.36,    7.49,    6.33,     2.0,    None,    8.11,    7.97),
    "clz":              (  17.49,   16.92,   17.03,    40.0,   27.18,   22.61,   23.53),
    "compare":          (   1.74,    2.16,    1.33,     0.5,    1.95,     1.9,    1.19),
    "divide":           (   1.53,    1.66,    1.78,    10.0,    1.13,    2.26,    2.31),
    "divide_fixed":     (   0.41,     4.0,     3.8,   35.21,    2.31,     6.0,    4.93),
    "entry":            (   4.18,    3.13,    5.38,   19.45,     0.0,    4.29,    6.72),
    "index":            (   0.43,    0.11,    0.25,    0.41,     0.0,    0.15,    0.23),
    "intrinsic":        (   1.02,    0.97,     1.0,    1.01,     1.0,    1.09,    1.27),
    "load":             (   0.88,    0.88,    1.19,    1.35,    1.24,    1.36,    1.79),
    "lookup":           (    0.0,     0.0,     0.0,     2.0,     3.2,     0.0,     0.0),
    "loop":             (   1.17,    2.16,    1.74,     1.0,    2.51,    3.98,    3.42),
    "move":             (   0.46,     0.0,    0.52,     0.0,     0.0,     0.0,    0.72),
    "multiply":         (   0.83,    0.74,    1.02,   13.93,    1.59,    0.63,    1.22),
    "multiply_add":     (   1.28,    1.22,    0.98,    3.72,    1.84,    1.38,    1.01),
    "reciprocal":       ( 117.25,   103.0,  105.86,   450.1,   120.0,  133.34,  156.23),
    "requantize_exact": (   None,    None,    None,   78.91,    None,    None,    None),
    "requantize_once":  (   5.42,    6.03,    2.79,   20.11,   11.84,   10.52,    3.62),
    "requantize_twice": (  25.48,    21.4,   21.65,   74.58,   26.83,   24.69,   25.19),
    "row":              (    0.0,     0.6,     0.0,     0.0,     0.0,     0.6,     0.0),
    "saturate":         (   0.74,    1.63,     2.1,    2.21,    3.44,    2.04,    3.67),
    "select":           (   0.14,    2.28,     2.5,     2.0,    1.34,    3.12,     3.2),
    "shift":            (   0.34,    0.36,    0.39,     4.0,    0.63,    0.42,    0.57),
    "shift_by":         (    2.1,    1.45,    1.51,     8.0,    1.98,    2.14,    2.75),
    "short_loop":       (   0.14,    0.22,     0.0,     0.0,     0.8,    0.29,    0.05),
    "smmla":            (   None,    None,    None,   21.62,    None,    None,    None),
    "spill":            (   0.46,     0.8,    0.98,     0.5,     1.5,    1.21,    1.58),
    "store":            (   3.12,    2.03,    1.17,    3.69,    1.57,    2.32,    1.88),
    "window":           (   0.27,    0.22,     0.3,    1.75,    0.24,    0.27,    0.34),
}
"""Kind of work -> instructions by family, then cycles of the Cortex-M4 and M3."""

_CODE_BYTES: Mapping[str, tuple[float | None, ...]] = {
    #                    Helium      DSP  Thumb-2  Armv6-M   RISC-V
    "accessed":         (    0.0,     0.0,     0.1,     0.0,     0.0),
    "alu":              (    3.5,     2.1,     2.5,     1.0,     3.9),
    "block":            (    4.2,    10.6,    25.0,    55.7,    11.7),
    "branch":           (    4.4,     6.1,     7.3,    22.3,     6.8),
    "call":             (    0.0,     7.5,     5.6,     0.0,     1.9),
    "clamp":            (    0.0,     0.6,     0.0,     4.0,     4.6),
    "clip":             (   20.7,    19.6,    24.2,    31.3,    None),
    "clz":              (    3.4,     3.3,     3.3,     4.7,     3.4),
    "compare":          (    5.4,     7.1,     6.8,     0.0,     5.4),
    "divide":           (    2.1,     2.0,     0.4,     0.0,     0.5),
    "divide_fixed":     (    1.7,     0.0,     0.0,     0.0,     0.0),
    "entry":            (   15.9,    12.2,    11.7,    12.8,    14.7),
    "index":            (    0.8,     0.7,     2.0,     0.0,     1.3),
    "intrinsic":        (    4.7,     4.0,    10.1,    10.1,    10.1),
    "line":             (    3.4,    None,     7.5,     1.7,     5.9),
    "load":             (    3.5,     3.9,     4.2,     7.0,     4.8),
    "lookup":           (    0.0,     0.0,     0.0,     0.6,     8.0),
    "loop":             (   24.0,    22.6,    21.3,    23.4,    24.0),
    "move":             (    0.0,     0.0,     0.0,     0.0,     0.0),
    "multiply":         (    2.6,     3.7,     3.2,     2.4,     2.7),
    "multiply_add":     (    5.0,     4.1,     1.6,     3.8,     4.3),
    "reciprocal":       (  158.1,   119.4,   123.3,   207.0,   193.8),
    "requantize_exact": (   None,    None,    None,    54.0,    None),
    "requantize_once":  (    9.0,     0.0,     0.0,     0.0,     0.0),
    "requantize_twice": (   80.0,    80.0,    80.0,   122.2,    80.0),
    "row":              (    0.0,     0.0,     0.0,     0.0,     0.0),
    "saturate":         (    7.1,     6.2,    13.4,    34.7,    23.1),
    "select":           (    7.1,     1.3,     0.0,     0.0,     0.0),
    "shift":            (    0.8,     1.6,     2.2,     9.5,     1.9),
    "shift_by":         (    0.5,     1.4,     1.9,     8.2,     4.6),
    "short_loop":       (    3.4,     3.6,     3.6,    13.0,     3.0),
    "smmla":            (   None,    None,    None,    29.0,    None),
    "spill":            (    1.6,     3.8,     8.4,     7.3,     4.9),
    "store":            (    4.9,     4.3,     1.5,     1.0,     3.0),
    "window":           (    0.7,     0.4,     1.1,     0.0,     1.0),
}
# fmt: on

_HELIUM, _DSP, _THUMB2, _ARMV6M, _RISCV = range(5)
_CYCLES = {"cortex-m4": 5, "cortex-m3": 6}
_RISCV_REGISTERS = 20
_THUMB1_REGISTERS = 5
"""Registers available besides operands; only eight of the sixteen do arithmetic or addressing."""


def cost_weights_for(target: Target | None) -> CostWeights:
    """Return the weights for a target, or generic ones if its family was not measured."""
    if target is None or target.kind not in ("cortex-m", "riscv32"):
        return GENERIC_WEIGHTS
    if target.kind == "riscv32":
        return _weights("riscv32", _RISCV, registers=_RISCV_REGISTERS)
    mcpu, has = str(target.attr("mcpu")), target_features(target)
    if "mve" in has:
        return _weights("cortex-m with Helium", _HELIUM, mcpu)
    if "dsp" in has:
        return _weights("cortex-m with DSP", _DSP, mcpu)
    if "thumb1" in has:
        return _weights("Armv6-M", _ARMV6M, mcpu, _THUMB1_REGISTERS)
    return _weights("cortex-m without DSP", _THUMB2, mcpu)


def _weights(name: str, family: int, mcpu: str = "", registers: int = REGISTERS) -> CostWeights:
    cycles = _column(_WEIGHTS, _CYCLES[mcpu]) if mcpu in _CYCLES else {}
    return CostWeights(
        name, _column(_WEIGHTS, family), cycles, _column(_CODE_BYTES, family), registers
    )


def _column(table: Mapping[str, tuple[float | None, ...]], index: int) -> dict[str, float]:
    return {kind: value for kind, row in table.items() if (value := row[index]) is not None}
