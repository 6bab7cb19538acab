"""`firmwright verify`: does the firmware compute what the reference computes?"""

from __future__ import annotations

import argparse
from typing import Any

from firmwright.base.errors import MismatchError, UsageError
from firmwright.cli.session_options import (
    add_session_options,
    add_variant_option,
    make_session_opener,
)
from firmwright.cli.shared_options import (
    Outcome,
    add_compile_options,
    add_model_options,
    add_sample_options,
    compile_from_args,
)
from firmwright.flows.access_checking import open_checked_session
from firmwright.flows.first_divergence import FirstDivergence
from firmwright.flows.sample_batches import Tensors, generate_samples, make_batch, read_npz
from firmwright.flows.verification import Verification, verify
from firmwright.pipeline import Compilation

NAME = "verify"
HELP = "compare a model's outputs on a board with the reference runtime's"
DEFAULT_SAMPLES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    add_sample_options(parser, None)
    parser.add_argument("--input", metavar="NPZ", help="samples of your own, as for run")
    parser.add_argument(
        "--expect", metavar="NPZ", help="outputs recorded elsewhere, to be compared instead"
    )
    parser.add_argument(
        "--find-first-divergence", action="store_true", help="name the first operator that differs"
    )
    parser.add_argument(
        "--check-plan",
        action="store_true",
        help="on the host: watch every byte the C reads and writes, and hold it against the plan",
    )
    add_compile_options(parser)
    add_session_options(parser)
    add_variant_option(parser)


def run(args: argparse.Namespace) -> Outcome:
    if args.input and args.samples is not None:
        raise UsageError("--input and --samples exclude each other.", hint="one of them.")
    if args.check_plan and (args.find_first_divergence or args.port or args.in_process):
        raise UsageError("--check-plan runs the C in a way of its own.", hint="it alone.")
    compiled = compile_from_args(args)
    inputs = compiled.module.io.inputs
    expected = _expected(args, compiled) if args.expect else None
    if args.input:
        batch = make_batch(read_npz(args.input), inputs, args.input)
    else:
        count = args.samples or (len(expected) if expected else DEFAULT_SAMPLES)
        batch = generate_samples(inputs, count, args.seed)
    open_with = open_checked_session if args.check_plan else make_session_opener(args)
    found = verify(
        compiled,
        batch=batch,
        expected=expected,
        find_first_divergence=args.find_first_divergence,
        open_with=open_with,
    )
    error = (
        None
        if found.exact
        else MismatchError(format_verdict(found), where=found.board, hint=verification_hint(found))
    )
    told = f"{found.model} on {found.board}: {format_verdict(found)}"
    if args.check_plan:
        told += " Every byte read was its buffer's own."
    return Outcome(verification_to_json(found), "" if error else told, error)


def _expected(args: argparse.Namespace, compiled: Compilation) -> tuple[Tensors, ...]:
    outputs = compiled.module.io.outputs
    return make_batch(read_npz(args.expect), outputs, args.expect, "output").samples


def verification_to_json(found: Verification) -> dict[str, Any]:
    """The keys of `verify --json`."""
    first, layer = found.first, found.layer
    data: dict[str, Any] = {
        "model": found.model,
        "board": found.board,
        "numerics": found.numerics,
        "reference": found.reference,
        "samples": found.samples,
        "values": found.values,
        "mismatches": found.mismatches,
        "max_abs_error": found.max_abs_error,
        "first_mismatch": None
        if first is None
        else {
            "sample": first.sample,
            "tensor": first.tensor,
            "index": list(first.index),
            "expected": first.expected,
            "actual": first.actual,
        },
    }
    if found.explanation:
        data["explanation"] = found.explanation
    if found.layers_compared is not None:
        data["layers"] = {
            "compared": found.layers_compared,
            "first_difference": None
            if layer is None
            else {
                "index": layer.index,
                "name": layer.name,
                "kind": layer.kind,
                "where": layer.where,
                "sample": layer.sample,
                "judged": layer.judged,
                "values": layer.values,
                "mismatches": layer.mismatches,
                "max_abs_error": layer.max_abs_error,
            },
        }
    return data


def format_verdict(found: Verification) -> str:
    """The verdict in a sentence or two."""
    samples = f"{found.samples} sample{'' if found.samples == 1 else 's'}"
    values = f"all {found.values:,} values of {samples}"
    if not found.exact:
        verdict = _difference(found)
    elif found.is_float:
        verdict = (
            f"{values} lie within the tolerance around {found.reference}; "
            f"the largest error is {found.max_abs_error:.3g}."
        )
    else:
        verdict = f"bit-exact: {values} equal {found.reference}."
    return " ".join([verdict, *_more(found)])


def _difference(found: Verification) -> str:
    first = found.first
    assert first is not None
    what = "lie outside the tolerance around" if found.is_float else "differ from"
    index = ", ".join(map(str, first.index))
    return (
        f"{found.mismatches:,} of {found.values:,} values {what} {found.reference}, "
        f"by at most {found.max_abs_error:.6g}; the first is {first.tensor}[{index}] of sample "
        f"{first.sample}: {first.actual}, where {first.expected} is expected."
    )


def _more(found: Verification) -> list[str]:
    lines = []
    if found.explanation:
        lines.append(f"{found.explanation[0].upper()}{found.explanation[1:]}")
    if found.layer is not None:
        layer = found.layer
        lines.append(
            f"The first operator that differs is {layer.name} ({layer.kind}, {layer.where}), "
            f"in sample {layer.sample} on {layer.judged}{_how_much(layer)}."
        )
    elif found.layers_compared is not None:
        lines.append(f"None of the {found.layers_compared} operators that were compared differs.")
    return lines


def _how_much(layer: FirstDivergence) -> str:
    if not layer.values:
        return ""
    return (
        f": {layer.mismatches:,} of {layer.values:,} values, by at most {layer.max_abs_error:.6g}"
    )


def verification_hint(found: Verification) -> str:
    if found.explanation:
        return ""
    return (
        ""
        if found.layers_compared is not None
        else "--find-first-divergence names the first operator."
    )
