"""circular_buffer: the last slots along axis 1; each run drops the first and appends x at the end.

Semantics: TFLM's custom operator, which can end a run early until enough slots have arrived. The
TFLite importer turns that into a branch, requested by attribute `cycles`. If the file has no
`cycles`, buffers of 5, 13 and 25 slots continue in every run and other sizes in every second run,
as in TFLM. For one shape TFLM decides by the number of buffers in the process; it is rejected.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import ImplicitState, ImportContext, ImportedCall, TensorType
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel

_SLOTS_FOR_EVERY_RUN = (5, 13, 25)
_SHAPE_BY_BUFFER_COUNT = (2, 96)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype != INT8 or y.dtype != INT8 or call.input(1).shape != y.shape:
        raise NotSupportedError(f"a circular buffer of {x.dtype.name} with {y.dtype.name} output")
    if len(y.shape) != 4 or x.shape != (1, 1, *y.shape[2:]):
        raise NotSupportedError(f"slots of {list(x.shape)} in {list(y.shape)}")
    return (TensorType(y.shape, INT8, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.concatenate([arrays[1][:, 1:], arrays[0]], axis=1),)


def lower(call: OpCall, b: Kernel) -> None:
    slot, total = call.input(0).elements, call.output.elements
    with (
        b.view("slot", b.input(0), 0, (slot,)) as x,
        b.views("before out", (total,), b.input(1), b.y) as (before, y),
    ):
        if total > slot:
            with b.for_("i", total - slot) as i:
                b.store(y, [i], b.load(before, [i + slot]))
        with b.for_("k", slot) as k:
            b.store(y, [k + (total - slot)], b.load(x, [k]))


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    y = context.outputs[0]
    cycles = _runs_per_execution(context, y.shape)
    zero = y.quantization.zero_points[0] if y.quantization else 0
    state = (ImplicitState("before", y, zero, next_output=0),)
    attrs = {"cycles": cycles} if cycles > 1 else {}
    return ImportedCall("circular_buffer", attrs, (0,), (), state)


def _runs_per_execution(context: ImportContext, shape: tuple[int, ...]) -> int:
    cycles = context.node.options.get("cycles_max", 0)
    if isinstance(cycles, int) and cycles > 0:
        return cycles
    if len(shape) == 4 and shape[1] in _SLOTS_FOR_EVERY_RUN:
        return 1
    if not isinstance(cycles, int) or shape[2:] == _SHAPE_BY_BUFFER_COUNT:
        raise NotSupportedError("a circular buffer without cycles_max")
    return 2


OPDEF = OpDef(
    name="circular_buffer",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={"tflite:custom:CIRCULAR_BUFFER": import_tflite},
    dtypes=("int8",),
    numerics={"tflm": NumericsSpec(None, "copies", "TFLM circular_buffer")},
)
