"""Functions of floats in line: with an FPU, and in integers for cores without one."""

from firmwright.base.dtypes import FLOAT32
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ir.tir.traversal import Node
from firmwright.ops.intrinsics import BASE_INTRINSICS

_NAMES = [name for name in read_sections(__file__) if not name.endswith("_fpu")]
_MEANINGS = {name: BASE_INTRINSICS[name.partition("_")[2]].meaning for name in _NAMES}
_TABLE = read_intrinsics(__file__, _MEANINGS)
INTRINSICS = tuple(_TABLE.values())
_SHORT = 20
"""Instructions of a function that compilers expand several times in one loop."""


def in_line(feature: str, call: tir.IntrinsicCall) -> tir.IntrinsicCall | None:
    """Return a call of the function in line, or None if there is none."""
    name = f"{'fpu' if feature == 'fpu' else 'soft'}_{call.name}"
    return tir.IntrinsicCall(name, call.args, FLOAT32) if name in _TABLE else None


def is_long(node: Node) -> bool:
    """Return whether the node is a function for which unrolling does not pay."""
    if not isinstance(node, tir.IntrinsicCall) or node.name not in _TABLE:
        return False
    return _TABLE[node.name].instructions > _SHORT
