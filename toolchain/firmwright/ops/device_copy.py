"""device_copy: the same tensor in another memory; the only way from one device's to another's.

The pass that plans devices puts it where a reader cannot see what the maker wrote; no model file
has it. Both tensors are of one type. Source of the semantics: a copy is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import Array, ConformanceCase, NumericsSpec, OpCall, OpDef
from firmwright.ops.kernel import Kernel
from firmwright.ops.strided_copy import DTYPES


def infer(call: OpCall) -> tuple[TensorType, ...]:
    return (call.input(0),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (arrays[0].copy(),)


def lower(call: OpCall, b: Kernel) -> None:
    count = call.input(0).elements
    with (
        b.view("source", b.input(0), 0, (count,)) as x,
        b.view("target", b.y, 0, (count,), access="w") as y,
        b.for_("i", count) as i,
    ):
        b.store(y, [i], b.load(x, [i]))


def cases() -> Iterator[ConformanceCase]:
    """No model file has it."""
    return iter(())


OPDEF = OpDef(
    name="device_copy",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={},
    cases=cases,
    dtypes=tuple(kind.name for kind in DTYPES),
    numerics={
        profile: NumericsSpec(None, "copies", "the input's bytes") for profile in ("litert", "tflm")
    },
)
