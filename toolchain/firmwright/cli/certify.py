"""`firmwright certify`: write a proof bundle that another program checks."""

import argparse
from pathlib import Path

from firmwright.base.json_input import Json
from firmwright.cli import arguments
from firmwright.cli.session_arguments import make_session_opener
from firmwright.cli.verb import Outcome
from firmwright.flows.certify.bundle import (
    CHECKER,
    CertifyRequest,
    ProofBundle,
    write_bundle,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.verify.verification import verification_samples

_DEFAULT_SAMPLES = 32


def run(args: argparse.Namespace) -> Outcome:
    model, options = arguments.prepare_compilation(args)
    options["analysis_hints"] = True
    compiled = compile_for(model, **options)
    count = args.samples or _DEFAULT_SAMPLES
    batch = verification_samples(compiled, count, args.seed)
    request = CertifyRequest(
        open_with=make_session_opener(args),
        samples=batch.samples,
        compiler=args.compiler,
    )
    bundle = write_bundle(compiled, request, Path(args.output))
    return Outcome(_to_json(bundle), _format(bundle))


def _to_json(bundle: ProofBundle) -> dict[str, Json]:
    analysis = bundle.analysis
    return {
        "folder": str(bundle.folder),
        "root": bundle.root,
        "bytes": bundle.size_bytes,
        "claims": list(bundle.claims),
        "alarms": None if analysis is None else len(analysis.alarms),
    }


def _format(bundle: ProofBundle) -> str:
    lines = [f"{bundle.folder}: a proof bundle of {bundle.size_bytes:,} bytes", ""]
    lines += bundle.claims
    if bundle.analysis is None:
        lines.append("not claimed: run-time errors, as frama-c is not installed")
    program = bundle.folder / CHECKER.name
    lines += ["", f"Check it with: python3 -I {program} {bundle.folder}"]
    return "\n".join(lines)
