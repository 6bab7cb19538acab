"""device_copy: copy a tensor to the memory of another device.

The pass that plans devices inserts it where the consumer cannot access the producer's memory.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import Array
from firmwright.ir.graph import OpCall, OpDef, TensorType, both_profiles
from firmwright.ops.kernel import Kernel
from firmwright.ops.strided_copy import DTYPES


def infer(call: OpCall) -> tuple[TensorType, ...]:
    return (call.input(0),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (arrays[0].copy(),)


def lower(call: OpCall, b: Kernel) -> None:
    count = call.input(0).elements
    with b.views("source target", (count,), b.input(0), b.y) as (x, y), b.for_("i", count) as i:
        b.store(y, [i], b.load(x, [i]))


OPDEF = OpDef(
    name="device_copy",
    infer=infer,
    reference=reference,
    lower=lower,
    dtypes=tuple(kind.name for kind in DTYPES),
    numerics=both_profiles(None, "copies", "the input's bytes"),
)
