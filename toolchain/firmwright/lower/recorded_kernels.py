"""Lowering by the record of an earlier compilation, and why it may be impossible."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import MismatchError
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import (
    ProgramRecord,
    RecordedKernel,
    describe_call,
    digest_kernel,
)
from firmwright.lower.kernel_maker import KernelMaker
from firmwright.ops.schedule import LoweringCandidate

HINT = (
    "update code and weights together, and compile the code with --weight-independent, "
    "which suits all weights."
)
_INT4_LEAST = -8
_INT4_MOST = 7


def missing_kernel_error(
    module: IRModule, record: ProgramRecord, name: str
) -> MismatchError:
    """Return the error for a call that the recorded program does not have."""
    what = f"{name}: the compilation to update has no kernel for this call."
    ours = {f"{call.op}_{index}" for index, call in enumerate(module.entry_graph.body)}
    other = sorted(set(record.calls) - ours)
    if other:
        what += f" It has {', '.join(other[:3])}, which this model does not have."
    return MismatchError(what, where=module.name, hint="update the code, too.")


def recorded_form(
    kernel: RecordedKernel, makers: Sequence[KernelMaker]
) -> LoweringCandidate | None:
    """Return the kernel with the recorded code, or the first; None if there is none.

    A kernel that updates its state is compared later.
    """
    forms = [build(kernel.schedule) for build in makers]
    built = [form for form in forms if form is not None]
    for form in built:
        if digest_kernel(form.function) == kernel.code:
            return form
    return built[0] if built else None


def difference_error(
    module: IRModule,
    record: ProgramRecord,
    index: int,
    kernel: str,
    suits: Callable[[IRModule], bool],
) -> MismatchError:
    """Return the error for call `index`, whose recorded `kernel` does not suit it.

    `suits` returns whether it suits a module with other weights.
    """
    call = module.entry_graph.body[index]
    schedule = record.kernels[kernel].schedule
    reason = _reason(module, record, index, call, suits)
    what = f"{kernel}: the kernel to keep, {schedule}, {reason}."
    return MismatchError(what, where=str(call.span) or module.name, hint=HINT)


def _reason(
    module: IRModule,
    record: ProgramRecord,
    index: int,
    call: Call,
    suits: Callable[[IRModule], bool],
) -> str:
    """Say what differs: the call, or a property of weights that the kernel requires."""
    before = record.calls.get(f"{call.op}_{index}", "")
    now = describe_call(call)
    if before and before != now:
        return f"is that of another call: it was {before}, and is {now}"
    for change in _changes(module, call):
        if suits(change.module):
            return f"requires {change.requirement}; {change.found}"
    facts = "; ".join(_ranges(module, call))
    return f"does not suit the new values, whose ranges determine its code: {facts}"


def _ranges(module: IRModule, call: Call) -> Iterator[str]:
    """Yield the ranges of the new weights, biases and weight scales."""
    for position, name in ((1, "weights"), (2, "biases")):
        constant = _constant(module, call, position)
        if constant is not None:
            values = constant.array()
            yield f"{name} from {values.min()} to {values.max()}"
    value = call.inputs[1] if len(call.inputs) > 1 else None
    if value is not None and value.type.quantization is not None:
        scales = value.type.quantization.scales
        yield f"weight scales from {min(scales):.9g} to {max(scales):.9g}"


@dataclass(frozen=True, slots=True)
class _Change:
    """A possible requirement, its violation, and the module with suitable weights."""

    requirement: str
    found: str
    module: IRModule


def _changes(module: IRModule, call: Call) -> Iterator[_Change]:
    """Yield properties of weights that can decide on a kernel, most specific first."""
    weights = _constant(module, call, 1)
    bias = _constant(module, call, 2)
    if bias is not None and not bias.dtype.is_float:
        values = bias.array()
        found = f"the new biases reach from {values.min()} to {values.max()}"
        yield _Change("smaller biases", found, _without_bias(module, bias))
    if weights is None or weights.dtype.is_float:
        return
    values, least = weights.array(), weights.dtype.min
    lowest = np.argwhere(values == least)
    if len(lowest):
        first = [int(index) for index in lowest[0]]
        found = f"the new weights contain {least} {len(lowest)} times, first at {first}"
        changed = _with(module, weights, np.maximum(values, least + 1))
        yield _Change(f"that no weight is {least}", found, changed)
    found = f"the new weights reach from {values.min()} to {values.max()}"
    small = np.clip(values, _INT4_LEAST, _INT4_MOST)
    yield _Change("weights within four bits", found, _with(module, weights, small))
    largest = weights.dtype.max
    large = np.full_like(values, largest)
    yield _Change(f"weights up to {largest}", found, _with(module, weights, large))
    quarters = _with(module, weights, values // 4)
    yield _Change("smaller sums", found, _without_bias(quarters, bias))


def _constant(module: IRModule, call: Call, index: int) -> Constant | None:
    """Return the constant that is input `index` of a call; None if there is none."""
    if index >= len(call.inputs):
        return None
    value = call.inputs[index]
    if value is None or not value.constant:
        return None
    return module.constants[value.constant]


def _with(module: IRModule, constant: Constant, values: Array) -> IRModule:
    """Return the module with other values of a constant."""
    changed = Constant.from_array(constant.name, values, constant.dtype)
    constants: Mapping[str, Constant] = {**module.constants, constant.name: changed}
    return replace(module, constants=constants)


def _without_bias(module: IRModule, bias: Constant | None) -> IRModule:
    if bias is None:
        return module
    return _with(module, bias, np.zeros(bias.shape, np.int64))
