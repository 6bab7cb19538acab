"""circular_buffer: the last slots of a tensor that comes slot by slot, the newest at the end.

    y = x before without its first slot, and x behind it; slots along axis 1.

Source of the semantics: TFLM's custom operator. It can be told to end a run before what follows,
until so many slots have come: the importer of TFLite files makes a branch of that, which attribute
`cycles` asks for. Files that do not say how often count 5, 13 and 25 slots as once and others as
each second time, as TFLM does; one shape it judges by the number of buffers in the process, and
that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImplicitState,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    NumericsSpec,
    OpCall,
    OpDef,
)
from firmwright.ops.importing import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.signal_spectrum import TFLM

_EACH_RUN = (5, 13, 25)
_BY_NUMBER = (2, 96)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype != INT8 or y.dtype != INT8 or call.input(1).shape != y.shape:
        raise NotSupportedError(f"a buffer of {x.dtype.name} in {y.dtype.name}")
    if len(y.shape) != 4 or x.shape != (1, 1, *y.shape[2:]):
        raise NotSupportedError(f"slots of {list(x.shape)} in {list(y.shape)}")
    return (TensorType(y.shape, INT8, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.concatenate([arrays[1][:, 1:], arrays[0]], axis=1),)


def lower(call: OpCall, b: Kernel) -> None:
    slot, total = call.input(0).elements, call.output.elements
    with (
        b.view("slot", b.input(0), 0, (slot,)) as x,
        b.view("before", b.input(1), 0, (total,)) as before,
        b.view("out", b.y, 0, (total,), access="w") as y,
    ):
        if total > slot:
            with b.for_("i", total - slot) as i:
                b.store(y, [i], b.load(before, [i + slot]))
        with b.for_("k", slot) as k:
            b.store(y, [k + (total - slot)], b.load(x, [k]))


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    y = context.outputs[0]
    cycles = _cycles(context, y.shape)
    zero = y.quantization.zero_points[0] if y.quantization else 0
    memory = (ImplicitState("before", y, zero, next_output=0),)
    return ImportedCall(
        "circular_buffer", {"cycles": cycles} if cycles > 1 else {}, (0,), (), memory
    )


def _cycles(context: ImportContext, shape: tuple[int, ...]) -> int:
    """At each how many-th run what follows runs."""
    told = context.node.options.get("cycles_max", 0)
    if isinstance(told, int) and told > 0:
        return told
    if len(shape) == 4 and shape[1] in _EACH_RUN:
        return 1
    if not isinstance(told, int) or shape[2:] == _BY_NUMBER:
        raise NotSupportedError("a buffer that does not say how often what follows it runs")
    return 2


def cases() -> Iterator[ConformanceCase]:
    for name, slots, options in (("told", 3, {"cycles_max": 1}), ("known", 5, {})):
        x = CaseTensor((1, 1, 2, 3), "int8", (0.5,), (-7,))
        y = CaseTensor((1, slots, 2, 3), "int8", (0.5,), (-7,), is_state=True)
        yield ConformanceCase(name, "custom:CIRCULAR_BUFFER", (x,), (y,), options, TFLM)


OPDEF = OpDef(
    name="circular_buffer",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={"tflite:custom:CIRCULAR_BUFFER": import_tflite},
    cases=cases,
    dtypes=("int8",),
    numerics={"tflm": NumericsSpec(None, "copies", "TFLM circular_buffer")},
)
