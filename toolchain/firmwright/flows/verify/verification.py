"""Compares the firmware's outputs with the reference: bit for bit, or in a tolerance.

Differing values are a result, not an error. With `expected`, recorded outputs are the
reference; if they differ, the runtime that produces them is named.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from firmwright.base.errors import ToolFailedError, ToolMissingError, UsageError
from firmwright.base.html_views import show_html
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.executors import Executor, run_calls
from firmwright.flows.predict.run_schedule import operator_devices
from firmwright.flows.samples.bounded_shapes import axis_of, compilation_at
from firmwright.flows.samples.reference_outputs import (
    ReferenceOutputs,
    compute_reference,
    reference_runtime,
    run_oracle_reference,
)
from firmwright.flows.samples.sample_batches import (
    SampleBatch,
    Tensors,
    generate_samples,
    generate_sizes,
)
from firmwright.flows.verify.first_divergence import (
    FirstDivergence,
    locate_first_divergence,
)
from firmwright.flows.verify.spectrum_bounds import compare_with_proof
from firmwright.ir.graph.attributes.movement import DynamicGatherAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs, ReductionAttrs
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.graph.evaluate import numerics_of
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.oracle.compare import (
    Comparison,
    Difference,
    Tolerance,
    compare_outputs,
)
from firmwright.oracle.reference_runner import RuntimeName
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
RECORDED_OUTPUTS = "the recorded outputs"
SAMPLES_PER_TASK = 32
EXACT_TOLERANCE = Tolerance(0.0, 0.0)
_OTHER_KERNELS = "its kernels may differ from the reference ones by 1 in every layer."
NUMERICS_HINTS: Mapping[RuntimeName, str] = {
    "litert": "use --numerics litert.",
    "tflm": "use --numerics tflm.",
    "litert-xnnpack": _OTHER_KERNELS,
    "litert-optimized": _OTHER_KERNELS,
}


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of the outputs over all samples.

    Of the `values` compared, `mismatches` differ or exceed the float tolerance. `layer`
    is the first diverging operator, if requested and found. `explanation` names the
    runtime that made a recording, or relates the reference to the model's own runtime.
    `devices` counts the operators on each device. `outputs` are the board's.
    """

    model: str
    board: str
    numerics: str
    reference: str
    samples: int
    values: int
    mismatches: int
    max_abs_error: int | float
    first: Difference | None
    is_float: bool
    layers_compared: int | None = None
    layer: FirstDivergence | None = None
    explanation: str = ""
    devices: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[Tensors, ...] = field(default=(), repr=False, compare=False)

    @property
    def exact(self) -> bool:
        return self.mismatches == 0

    def _repr_html_(self) -> str:
        return show_html(self)


def verify(
    compiled: Compilation,
    *,
    samples: int = 10,
    seed: int = 0,
    batch: SampleBatch | None = None,
    expected: Sequence[Tensors] | None = None,
    find_first_divergence: bool = False,
    open_with: SessionOpener = open_session,
) -> Verification:
    """Run `samples` samples of `seed` (or `batch`) and compare with the reference."""
    if batch is None:
        batch = verification_samples(compiled, samples, seed)
    with ThreadPoolExecutor(1) as pool:
        reference_future = pool.submit(
            _reference, compiled, batch, expected, find_first_divergence
        )
        with open_with(compiled) as session:
            actual = session.run_all(batch.samples)
        reference = reference_future.result()
    imported, outputs = compiled.imported, reference.outputs
    comparison = compare_with_proof(imported, batch.samples, outputs, actual)
    at = operator_devices(compiled.module)
    result = Verification(
        model=compiled.module.name,
        board=compiled.board.name,
        numerics=numerics_of(compiled.module),
        reference=reference.name,
        samples=len(reference.outputs),
        values=comparison.values,
        mismatches=comparison.mismatches,
        max_abs_error=comparison.max_abs_error,
        first=comparison.first,
        is_float=any(t.type.dtype.has_fractions for t in compiled.module.io.outputs),
        explanation=_remark(comparison, reference),
        devices=Counter(d for d in at.values() if not is_copy_device(d)),
        outputs=actual,
    )
    if find_first_divergence:
        difference, compared = locate_first_divergence(
            compiled, batch.samples, reference, open_with
        )
        result = replace(result, layers_compared=compared, layer=difference)
    if expected is not None and not result.exact:
        runtime = identify_recording_runtime(compiled, batch.samples, expected)
        result = replace(result, explanation=runtime)
    return result


def verification_samples(compiled: Compilation, count: int, seed: int) -> SampleBatch:
    """Return `count` samples, or of a bounded axis at least one of every size."""
    axis = axis_of(compiled)
    if axis is None:
        inputs, ranges = compiled.module.io.inputs, index_ranges(compiled)
        return generate_samples(inputs, count, seed, ranges)
    ranges_of_sizes: dict[int, Mapping[str, tuple[int, int]]] = {}
    for size in axis.sizes:
        ranges_of_sizes[size] = index_ranges(compilation_at(compiled, size))
    return generate_sizes(compiled, count, seed, ranges_of_sizes)


def _remark(comparison: Comparison, reference: ReferenceOutputs) -> str:
    if not comparison.proved:
        return reference.note
    return (
        f"{comparison.proved:,} of them differ by more, within the proved bound of "
        "spectra of floats (docs/reference/numerics.md): a logarithm enlarges the "
        "rounding of quiet bins."
    )


def verify_in_parts(
    executor: Executor,
    compiled: Compilation,
    batch: SampleBatch,
    expected: Sequence[Tensors] | None = None,
    open_with: SessionOpener = open_session,
) -> Verification:
    """Verify parts of the samples as tasks; a model with state has a single part."""
    check_recording(batch, expected)
    size = len(batch.samples) if compiled.module.io.state else SAMPLES_PER_TASK
    calls: list[Callable[[], Verification]] = []
    for start in range(0, len(batch.samples), size):
        part = slice(start, start + size)
        samples = replace(batch, samples=batch.samples[part])
        recorded = None if expected is None else expected[part]
        call = partial(
            verify, compiled, batch=samples, expected=recorded, open_with=open_with
        )
        calls.append(call)
    return _merge(run_calls(executor, calls), size)


def _merge(parts: Sequence[Verification], size: int) -> Verification:
    """Return the result of all parts, each of `size` samples.

    The explanation is the one in which the parts agree.
    """
    explanations = {part.explanation for part in parts if part.first}
    if not explanations:
        explanations = {parts[0].explanation}
    outputs: list[Tensors] = []
    for part in parts:
        outputs += part.outputs
    return replace(
        parts[0],
        samples=sum(part.samples for part in parts),
        values=sum(part.values for part in parts),
        mismatches=sum(part.mismatches for part in parts),
        max_abs_error=max(part.max_abs_error for part in parts),
        first=_first_difference(parts, size),
        explanation=explanations.pop() if len(explanations) == 1 else "",
        outputs=tuple(outputs),
    )


def _first_difference(parts: Sequence[Verification], size: int) -> Difference | None:
    """Return the first difference, with its sample counted from the first part."""
    for index, part in enumerate(parts):
        if part.first:
            return replace(part.first, sample=part.first.sample + index * size)
    return None


def check_recording(batch: SampleBatch, expected: Sequence[Tensors] | None) -> None:
    """Raise UsageError if the numbers of recorded outputs and of samples differ."""
    if expected is not None and len(expected) != len(batch.samples):
        what = (
            f"the recording has {len(expected)} samples, but {len(batch.samples)} are "
            "run."
        )
        hint = f"use --samples {len(expected)}, or --input with the recorded inputs."
        raise UsageError(what, hint=hint)


def _reference(
    compiled: Compilation,
    batch: SampleBatch,
    expected: Sequence[Tensors] | None,
    layers: bool,
) -> ReferenceOutputs:
    if expected is None:
        return compute_reference(compiled, batch.samples, layers=layers)
    check_recording(batch, expected)
    layer_values: tuple[Tensors, ...] = ()
    if layers:
        layer_values = compute_reference(compiled, batch.samples, layers=True).layers
    return ReferenceOutputs(RECORDED_OUTPUTS, tuple(expected), layer_values)


def identify_recording_runtime(
    compiled: Compilation, samples: Sequence[Tensors], expected: Sequence[Tensors]
) -> str:
    """Return a sentence that names the runtime with exactly these outputs, or ""."""
    if compiled.source is None or reference_runtime(compiled) not in ("litert", "tflm"):
        return ""
    for runtime in ("litert", "tflm", "litert-xnnpack", "litert-optimized"):
        try:
            reference = run_oracle_reference(compiled, samples, runtime)
        except (ToolMissingError, ToolFailedError) as error:
            log.info("%s is not available: %s", runtime, error)
            continue
        outputs = reference.outputs
        comparison = compare_outputs(outputs, expected, EXACT_TOLERANCE)
        if comparison.mismatches == 0:
            sentence = f"the recording equals {reference.name} exactly"
            return f"{sentence}; {NUMERICS_HINTS[runtime]}"
    return ""


_CAST = re.compile(r"int\d+\(a\)")
_WITH_NUMBER = re.compile(r"a (?P<sign>[*+-]) u?int\d+\((?P<number>\d+)\)")
"""An operation with a number; a difference keeps the limit, as it may be negative."""
_CHECKING_RUNTIMES = ("onnxruntime", "pytorch")
_INDEXING = ("dynamic_gather", "dynamic_scatter")
_MOVING = (
    "broadcast_to",
    "concatenation",
    "gather",
    "reshape",
    "split",
    "strided_slice",
    "transpose",
)


def index_ranges(compiled: Compilation) -> Mapping[str, tuple[int, int]]:
    """Return the ranges of inputs that are indices, if the reference checks them.

    ONNX Runtime and PyTorch do. Indices may be moved, and computed by products with
    constants and by sums.
    """
    entry = compiled.imported.entry
    if not isinstance(entry, Function):
        return {}
    if reference_runtime(compiled) not in _CHECKING_RUNTIMES:
        return {}
    limits: dict[str, int] = {}
    for call in reversed(entry.body):
        limit = _limit(call, limits, compiled.imported)
        if limit is None:
            continue
        sources = call.inputs[1:2] if call.op in _INDEXING else call.inputs
        for source in sources:
            if source is not None:
                limits[source.name] = min(limit, limits.get(source.name, limit))
    ranges: dict[str, tuple[int, int]] = {}
    for param in entry.params:
        if param.name in limits:
            ranges[param.name] = (0, limits[param.name])
    return ranges


def _limit(call: Call, limits: Mapping[str, int], module: IRModule) -> int | None:
    """Return the largest value of a call's operands that are indices, None for none."""
    if call.op in _INDEXING:
        data, indices = call.inputs[:2]
        assert data is not None
        assert indices is not None
        attrs, first = call.attrs, 0
        if isinstance(attrs, DynamicGatherAttrs):
            if attrs.mode in ("along", "elements") and attrs.axis is not None:
                return data.type.shape[attrs.axis] - 1
            first = attrs.batch_dims or 0
        sizes = data.type.shape[first : first + indices.type.shape[-1]]
        return min(sizes, default=0) - 1
    known = [limits[value.name] for value in call.outputs if value.name in limits]
    limit = known[0] if known else None
    if limit is None or call.op in _MOVING:
        return limit
    x = call.inputs[0]
    is_sum = isinstance(call.attrs, ReductionAttrs) and call.attrs.step == "add"
    if is_sum and x is not None:
        produced = math.prod(call.outputs[0].type.shape)
        return limit * produced // max(1, math.prod(x.type.shape))
    return _limit_of_formula(call, limit, module) if call.op == "expression" else None


def _limit_of_formula(call: Call, limit: int, module: IRModule) -> int | None:
    """Return the limit of a formula's operands if that of its result is `limit`."""
    formula = call.attributes(ExpressionAttrs).formula
    if _CAST.fullmatch(formula):
        return limit
    if match := _WITH_NUMBER.fullmatch(formula):
        number = int(match["number"])
        if match["sign"] == "*":
            return limit // max(1, number)
        return max(0, limit - number if match["sign"] == "+" else limit)
    names: list[str] = []
    most = 0
    for value in call.inputs:
        if value is not None and value.constant:
            names.append(value.constant)
            constant = module.constants[value.constant]
            most = max(most, int(constant.array().max(initial=0)))
    match formula:
        case "a * b" if names:
            return limit // max(1, most)
        case "a + b":
            return max(0, limit - most) if names else limit // 2
    return None
