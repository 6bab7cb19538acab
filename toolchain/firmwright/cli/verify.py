"""`firmwright verify`: compare a model's outputs on a board with the reference."""

import argparse
import time
from collections.abc import Sequence
from functools import partial

from firmwright.base.array_files import read_npz
from firmwright.base.errors import MismatchError, UsageError
from firmwright.cli import arguments
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.board.model_session import (
    SessionOpener,
    SessionOptions,
    open_session,
)
from firmwright.flows.evidence.collection import EvidenceRequest, collect_evidence
from firmwright.flows.evidence.record import print_evidence
from firmwright.flows.executors import open_executor
from firmwright.flows.model.model import split_entry_point, write_file
from firmwright.flows.samples.sample_batches import (
    SampleBatch,
    make_expected_batch,
    read_inputs,
)
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.range_use import (
    RangeUse,
    describe_range_use,
    measure_range_use,
)
from firmwright.flows.verify.verification import (
    Verification,
    verification_samples,
    verify,
    verify_in_parts,
)
from firmwright.pipeline import Compilation
from firmwright.report.evaluation import format_share

DEFAULT_SAMPLES = 10


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that exclude each other."""
    if args.input and args.samples is not None:
        raise UsageError(
            "--input and --samples exclude each other.", hint="omit one of them."
        )
    for option, chosen in (
        ("--check-plan", args.check_plan),
        ("--scheduler", args.scheduler),
    ):
        if chosen and (args.find_first_divergence or args.port or args.in_process):
            others = "--find-first-divergence, --port and --in-process"
            what = f"{option} excludes {others}."
            raise UsageError(what, hint=f"omit {option} or the others.")
    if args.ranges and not args.input:
        what = "generated samples say nothing about the ranges of a model."
        raise UsageError(what, hint="give your own with --input NPZ, or omit --ranges.")
    if args.evidence:
        _check_evidence_options(args)


def run(args: argparse.Namespace) -> Outcome:
    _check_options(args)
    compiled = arguments.compile_from_args(args)
    expected = None
    if args.expect:
        arrays = read_npz(args.expect)
        outputs = compiled.module.io.outputs
        expected = make_expected_batch(arrays, outputs, args.expect).samples
    if args.input:
        batch = read_inputs(args.input, compiled)
    else:
        count = args.samples or (len(expected) if expected else DEFAULT_SAMPLES)
        batch = verification_samples(compiled, count, args.seed)
    if args.scheduler:
        settings: SessionOptions = {
            "timeout_s": args.timeout,
            "compiler": args.compiler,
            "variant": args.variant,
        }
        opener: SessionOpener = partial(open_session, **settings)
        if args.check_plan:
            opener = open_checked_session
        with open_executor(1, args.scheduler) as executor:
            result = verify_in_parts(executor, compiled, batch, expected, opener)
    else:
        opener = open_checked_session if args.check_plan else make_session_opener(args)
        begin = time.monotonic()
        result = verify(
            compiled,
            batch=batch,
            expected=expected,
            find_first_divergence=args.find_first_divergence,
            open_with=opener,
        )
        if args.evidence:
            wall_seconds = time.monotonic() - begin
            _write_evidence(args, compiled, batch, result, wall_seconds)
    error = None
    if not result.exact:
        verdict, hint = format_verdict(result), verification_hint(result)
        error = MismatchError(verdict, where=result.board, hint=hint)
    text = f"{result.model} on {result.board}: {format_verdict(result)}"
    if args.check_plan:
        text += " All memory accesses agree with the plan."
    data = verification_to_json(result)
    warnings = batch.warnings
    if args.ranges:
        uses = measure_range_use(compiled, batch.samples)
        data["ranges"] = uses
        text = f"{text}\n\n{format_range_use(uses)}"
        warnings += describe_range_use(uses)
    return Outcome(data, "" if error else text, error, warnings)


def format_range_use(uses: Sequence[RangeUse]) -> str:
    """Format the ranges of results, with the values in them and those at an end."""
    rows: list[list[Cell]] = []
    for use in uses:
        low, high = use.value_range
        limits = f"{low:.3g} to {high:.3g}"
        values = f"{use.lowest:.3g} to {use.highest:.3g}"
        at_ends = format_share(use.at_ends, use.values) if use.at_ends else ""
        used = f"{use.used_percent:.0f} %"
        rows.append([use.name, use.op, limits, values, used, at_ends])
    head = ["layer", "operator", "range", "values", "used", "at an end"]
    return format_table(head, rows, drop=("operator",))


def _check_evidence_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that evidence has no record of."""
    for option, chosen in (
        ("--expect", args.expect),
        ("--scheduler", args.scheduler),
        ("--check-plan", args.check_plan),
        ("--in-process", args.in_process),
        ("--variant", args.variant != "release"),
    ):
        if chosen:
            what = f"--evidence excludes {option}."
            raise UsageError(what, hint=f"omit {option} or --evidence.")


def _write_evidence(
    args: argparse.Namespace,
    compiled: Compilation,
    batch: SampleBatch,
    result: Verification,
    wall_seconds: float,
) -> None:
    request = EvidenceRequest(
        model_file=split_entry_point(args.model)[0],
        open_with=make_session_opener(args),
        port=args.port,
        compiler=args.compiler,
        input_file=args.input or "",
        seed=args.seed,
    )
    evidence = collect_evidence(compiled, request, batch, result, wall_seconds)
    write_file(args.evidence, print_evidence(evidence).encode())


def verification_to_json(result: Verification) -> dict[str, object]:
    data: dict[str, object] = {
        "model": result.model,
        "board": result.board,
        "numerics": result.numerics,
        "reference": result.reference,
        "samples": result.samples,
        "values": result.values,
        "mismatches": result.mismatches,
        "max_abs_error": result.max_abs_error,
        "devices": result.devices,
        "first_mismatch": result.first,
    }
    if result.explanation:
        data["explanation"] = result.explanation
    if result.layers_compared is not None:
        data["layers"] = {
            "compared": result.layers_compared,
            "first_difference": result.layer,
        }
    return data


def format_verdict(result: Verification) -> str:
    samples = f"{result.samples} sample{'' if result.samples == 1 else 's'}"
    values = f"all {result.values:,} values of {samples}"
    if not result.exact:
        verdict = _difference(result)
    elif result.is_float and not result.max_abs_error:
        verdict = f"{values} equal {result.reference}."
    elif result.is_float:
        verdict = (
            f"{values} are within the tolerance of {result.reference}; "
            f"the largest error is {result.max_abs_error:.3g}."
        )
    else:
        verdict = f"bit-exact: {values} equal {result.reference}."
    return " ".join([verdict, *_remarks(result)])


def _difference(result: Verification) -> str:
    first = result.first
    assert first is not None
    relation = "exceed the tolerance of" if result.is_float else "differ from"
    index = ", ".join(map(str, first.index))
    return (
        f"{result.mismatches:,} of {result.values:,} values {relation} "
        f"{result.reference}, by at most {result.max_abs_error:.6g}; the first is "
        f"{first.tensor}[{index}] of sample {first.sample}: {first.actual}, where "
        f"{first.expected} is expected."
    )


def _remarks(result: Verification) -> list[str]:
    lines = []
    if result.explanation:
        lines.append(f"{result.explanation[0].upper()}{result.explanation[1:]}")
    if len(result.devices) > 1:
        counts = [f"{count} on {device}" for device, count in result.devices.items()]
        lines.append(f"Operators: {', '.join(counts)}.")
    layer = result.layer
    if layer is not None:
        error = ""
        if layer.values:
            wrong = f"{layer.mismatches:,} of {layer.values:,} values"
            error = f": {wrong}, by at most {layer.max_abs_error:.6g}"
        lines.append(
            f"The first operator that differs is {layer.name} ({layer.kind} on "
            f"{layer.device}, {layer.where}), in sample {layer.sample} on "
            f"{layer.judged}{error}."
        )
    elif result.layers_compared is not None:
        count = result.layers_compared
        lines.append(f"None of the {count} compared operators differs.")
    return lines


def verification_hint(result: Verification) -> str:
    if result.explanation or result.layers_compared is not None:
        return ""
    return "find the first differing operator with --find-first-divergence."
