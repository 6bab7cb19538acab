"""Functions of floats in line: with an FPU, and in integers for cores without one."""

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ir.tir.traversal import Node
from firmwright.ops.intrinsics import BASE_INTRINSICS

_BOTH = ("ceil", "erfc", "exp", "expm1", "floor", "log", "rint", "round", "rsqrt", "sqrt", "tanh")
_NAMES = {"fpu": (*_BOTH, "cos", "erf", "sin"), "soft": _BOTH}
_SINE, _QUARTERS = "soft_sine_f32", {"sin_f32": 0, "cos_f32": 1}
_SIN, _COS = (BASE_INTRINSICS[name].meaning for name in _QUARTERS)

_MEANINGS = {
    **{
        f"{family}_{name}_f32": BASE_INTRINSICS[f"{name}_f32"].meaning
        for family, names in _NAMES.items()
        for name in names
    },
    _SINE: lambda x, quarters: _COS(x) if np.all(quarters) else _SIN(x),
}
_TABLE = read_intrinsics(__file__, _MEANINGS)
INTRINSICS = tuple(_TABLE.values())
FPU_FUNCTIONS = frozenset(_NAMES["fpu"])
_SHORT = 20
"""Instructions of a function that compilers expand several times in one loop."""


def in_line(feature: str, call: Node) -> tir.IntrinsicCall | None:
    """Return a call of the function in line, or None if there is none."""
    if not isinstance(call, tir.IntrinsicCall):
        return None
    name = f"fpu_{call.name}" if feature == "fpu" else f"soft_{call.name}"
    if feature != "fpu" and call.name in _QUARTERS:
        quarters = tir.IntImm(_QUARTERS[call.name], INT32)
        return tir.IntrinsicCall(_SINE, (*call.args, quarters), FLOAT32)
    return tir.IntrinsicCall(name, call.args, FLOAT32) if name in _TABLE else None


def is_long(node: Node) -> bool:
    """Return whether the function has so many instructions that unrolling does not pay."""
    if not isinstance(node, tir.IntrinsicCall) or node.name not in _TABLE:
        return False
    return _TABLE[node.name].instructions > _SHORT
