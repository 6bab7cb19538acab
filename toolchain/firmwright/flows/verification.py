"""Does the firmware compute what the reference computes? Bit for bit, or within the tolerance.

In: a `Compilation`, samples, and where it runs. Out: a `Verification` with the number of differing
values; it is a result, not an error, that they differ. With `expected` the judge is the user's own
recording, and a known runtime that it equals is named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from firmwright.base.errors import ToolFailedError, ToolMissingError, UsageError
from firmwright.flows.first_divergence import FirstDivergence, locate_first_divergence
from firmwright.flows.html import verification_html
from firmwright.flows.model_session import ModelSession, open_session
from firmwright.flows.reference_outputs import (
    ReferenceOutputs,
    compute_reference,
    numerics_of,
    run_oracle_reference,
)
from firmwright.flows.sample_batches import SampleBatch, Tensors, generate_samples
from firmwright.frontends.onnx import is_onnx
from firmwright.oracle.compare import Comparison, Difference, Tolerance, compare
from firmwright.oracle.reference_runner import RuntimeName
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
RECORDED_OUTPUTS = "the recorded outputs"
EXACT_TOLERANCE = Tolerance(0.0, 0.0)
NUMERICS_HINTS: Mapping[RuntimeName, str] = {
    "litert": "--numerics litert computes that.",
    "tflm": "--numerics tflm computes that.",
    "litert-xnnpack": "its kernels may differ from the reference ones by 1 in every layer.",
    "litert-optimised": "its kernels may differ from the reference ones by 1 in every layer.",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """How the outputs compare over all samples.

    `mismatches` counts values that differ, or that lie outside the float tolerance, of `values`.
    `layer` is the first operator that differs, where that was asked for and one does.
    `explanation` says which runtime made a user's recording, where that is known, or how the
    reference stands to the model's own runtime. `outputs` are
    what the board gave.
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
    outputs: tuple[Tensors, ...] = field(default=(), repr=False, compare=False)

    @property
    def exact(self) -> bool:
        return self.mismatches == 0

    def _repr_html_(self) -> str:
        return verification_html(self)


def verify(
    compiled: Compilation,
    *,
    samples: int = 10,
    seed: int = 0,
    batch: SampleBatch | None = None,
    expected: Sequence[Tensors] | None = None,
    find_first_divergence: bool = False,
    open_with: Callable[[Compilation], ModelSession] = open_session,
) -> Verification:
    """Run `samples` samples of `seed` (or `batch`) and compare with the reference.

    The reference runtime works in a process of its own while the firmware is built and run.
    """
    if batch is None:
        batch = generate_samples(compiled.module.io.inputs, samples, seed)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_reference, compiled, batch, expected, find_first_divergence)
        with open_with(compiled) as session:
            actual = session.run_all(batch.samples)
        reference = asked.result()
    found = _verification(compiled, reference, compare(reference.outputs, actual))
    found = replace(found, outputs=actual)
    if find_first_divergence:
        difference, compared = locate_first_divergence(
            compiled, batch.samples, reference, open_with
        )
        found = replace(found, layers_compared=compared, layer=difference)
    if expected is not None and not found.exact:
        found = replace(
            found, explanation=identify_recording_runtime(compiled, batch.samples, expected)
        )
    return found


def _reference(
    compiled: Compilation, batch: SampleBatch, expected: Sequence[Tensors] | None, layers: bool
) -> ReferenceOutputs:
    if expected is None:
        return compute_reference(compiled, batch.samples, layers=layers)
    if len(expected) != len(batch.samples):
        raise UsageError(
            f"{len(expected)} samples are expected, {len(batch.samples)} are run.",
            hint=f"--samples {len(expected)}, or --input with the arrays that were recorded.",
        )
    known = compute_reference(compiled, batch.samples, layers=True).layers if layers else ()
    return ReferenceOutputs(RECORDED_OUTPUTS, tuple(expected), known)


def _verification(
    compiled: Compilation, reference: ReferenceOutputs, comparison: Comparison
) -> Verification:
    outputs = compiled.module.io.outputs
    return Verification(
        model=compiled.module.name,
        board=compiled.board.name,
        numerics=numerics_of(compiled.module),
        reference=reference.name,
        samples=len(reference.outputs),
        values=comparison.values,
        mismatches=comparison.mismatches,
        max_abs_error=comparison.max_abs_error,
        first=comparison.first,
        is_float=any(tensor.type.dtype.is_float for tensor in outputs),
        explanation=reference.note,
    )


def identify_recording_runtime(
    compiled: Compilation, samples: Sequence[Tensors], expected: Sequence[Tensors]
) -> str:
    """One sentence on the runtime whose outputs the recording equals; "" if none does."""
    if compiled.source is None or is_onnx(compiled.source, ""):
        return ""
    for runtime in ("litert", "tflm", "litert-xnnpack", "litert-optimised"):
        try:
            known = run_oracle_reference(compiled, samples, runtime)
        except (ToolMissingError, ToolFailedError) as error:
            log.info("%s cannot be asked: %s", runtime, error)
            continue
        if compare(known.outputs, expected, EXACT_TOLERANCE).mismatches == 0:
            return f"the recording equals {known.name} exactly; {NUMERICS_HINTS[runtime]}"
    return ""
