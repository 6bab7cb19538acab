"""Checks the inputs, outputs and comparisons of evidence against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.flows.evidence.findings import (
    Finding,
    Verdict,
    compare_values,
    unchecked,
)
from firmwright.flows.evidence.record import (
    Evidence,
    OutputValues,
    hash_tensors,
    record_outputs,
    to_array,
)
from firmwright.flows.samples.reference_outputs import (
    ReferenceOutputs,
    compute_reference,
    float_tolerance,
)
from firmwright.flows.samples.sample_batches import (
    SampleBatch,
    Tensors,
    generate_samples,
    read_inputs,
)
from firmwright.flows.verify.spectrum_bounds import compare_with_proof
from firmwright.flows.verify.verification import index_ranges
from firmwright.oracle.compare import Comparison, Tolerance, compare_tensor
from firmwright.pipeline import Compilation


def read_samples(
    evidence: Evidence, compiled: Compilation, input_file: str
) -> SampleBatch | None:
    """Return the inputs: of the user's file, or generated; None without the file."""
    origin = evidence.inputs
    if input_file:
        return read_inputs(input_file, compiled)
    if origin.origin == "file":
        return None
    inputs, ranges = compiled.module.io.inputs, index_ranges(compiled)
    return generate_samples(inputs, origin.samples, origin.seed, ranges)


def check_inputs(
    evidence: Evidence, compiled: Compilation, batch: SampleBatch | None
) -> Iterator[Finding]:
    if batch is None:
        reason = "The inputs are in a file of the sender; give it with --input."
        yield unchecked("inputs", reason)
        return
    samples = batch.samples
    yield compare_values("inputs.samples", evidence.inputs.samples, len(samples))
    if evidence.inputs.origin == "generated":
        yield compare_values("inputs.file", evidence.inputs.file, "")
    names = [tensor.name for tensor in compiled.module.io.inputs]
    digest = hash_tensors(samples, names)
    yield compare_values("inputs.sha256", evidence.inputs.sha256, digest)


def check_outputs(
    evidence: Evidence,
    compiled: Compilation,
    batch: SampleBatch | None,
    rerun: Sequence[Tensors],
) -> Iterator[Finding]:
    """Compare outputs with the reference's, and with those of `rerun` if there are any.

    Integers equal the reference's bit for bit, floats within its tolerance. `rerun`
    are the outputs of the same firmware in an emulator.
    """
    if batch is None:
        reason = "The inputs are not known."
        yield unchecked("outputs", reason)
        yield unchecked("reference", reason)
        return
    try:
        reference = compute_reference(compiled, batch.samples)
    except (ToolMissingError, ToolFailedError) as error:
        yield unchecked("outputs", str(error))
        yield unchecked("reference", str(error))
        return
    is_whole = len(reference.outputs[0]) == len(compiled.module.io.outputs)
    if not (is_whole or rerun):
        reason = "The reference has no values of elements that are not in use."
        yield unchecked("outputs", reason)
        yield unchecked("reference", reason)
        return
    expected = record_outputs(reference.outputs if is_whole else rerun)
    names = [_signature(row) for row in evidence.outputs]
    if names != [_signature(row) for row in expected]:
        reason = "Their names, types or shapes are other ones."
        yield Finding("outputs", Verdict.DIFFERS, reason)
        return
    again = record_outputs(rerun) if rerun else expected
    tolerance = float_tolerance(compiled.imported)
    for row, wanted, own in zip(evidence.outputs, expected, again, strict=True):
        yield _check_values(row, wanted, tolerance)
        yield _check_hash(row, own, is_rerun=bool(rerun))
    compare = partial(compare_with_proof, compiled.imported, batch.samples)
    yield from _check_comparison(evidence, reference, rerun, compare)


def _signature(row: OutputValues) -> tuple[object, ...]:
    return row.name, row.dtype, tuple(row.shape)


def _check_values(
    row: OutputValues, expected: OutputValues, tolerance: Tolerance
) -> Finding:
    statement = f"outputs[{row.name}].values"
    if len(row.values) != len(expected.values):
        counts = f"{len(row.values):,} values; it must have {len(expected.values):,}"
        return Finding(statement, Verdict.DIFFERS, f"The record has {counts}.")
    try:
        values = to_array(row)
    except ValueError as error:
        return Finding(statement, Verdict.DIFFERS, f"The record {error}.")
    compared = compare_tensor(0, row.name, to_array(expected), values, tolerance)
    if not compared.mismatches:
        return Finding(statement, Verdict.CONFIRMED)
    reason = (
        f"{compared.mismatches:,} of {compared.values:,} differ from the reference."
    )
    return Finding(statement, Verdict.DIFFERS, reason)


def _check_hash(row: OutputValues, own: OutputValues, *, is_rerun: bool) -> Finding:
    statement = f"outputs[{row.name}].sha256"
    if is_rerun or np.dtype(own.dtype).kind != "f":
        return compare_values(statement, row.sha256, own.sha256)
    reason = "The last bits of floats depend on the board."
    return unchecked(statement, reason)


def _check_comparison(
    evidence: Evidence,
    reference: ReferenceOutputs,
    rerun: Sequence[Tensors],
    compare: Callable[[Sequence[Tensors], Sequence[Tensors]], Comparison],
) -> Iterator[Finding]:
    """Check the sender's comparison with the reference."""
    recorded, name, expected = evidence.reference, reference.name, reference.outputs
    if recorded.name == name:
        yield Finding("reference.name", Verdict.CONFIRMED)
    else:
        reason = f"The record's is {recorded.name}; here is {name}."
        yield unchecked("reference.name", reason)
    actual = rerun or _recorded_samples(evidence, expected)
    if not actual:
        values = sum(array.size for sample in expected for array in sample.values())
        yield compare_values("reference.values", recorded.values, values)
        for part in ("mismatches", "max_abs_error"):
            reason = "The record does not have all values."
            yield unchecked(f"reference.{part}", reason)
        return
    compared = compare(expected, actual)
    for part in ("values", "mismatches", "max_abs_error"):
        own = getattr(compared, part)
        yield compare_values(f"reference.{part}", getattr(recorded, part), own)


def _recorded_samples(
    evidence: Evidence, expected: Sequence[Tensors]
) -> Sequence[Tensors]:
    """Return the recorded outputs, if their hashes or all their values tell them."""
    rows = evidence.outputs
    if all(row.sha256 == hash_tensors(expected, [row.name]) for row in rows):
        return expected
    samples: list[dict[str, Array]] = [{} for _ in expected]
    for row in rows:
        try:
            values = to_array(row)
        except ValueError:
            return ()
        shape = (len(expected), *expected[0][row.name].shape)
        if values.size != np.prod(shape):
            return ()
        for sample, own in zip(samples, values.reshape(shape), strict=True):
            sample[row.name] = own
    return samples
