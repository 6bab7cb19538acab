"""`firmwright evidence`: check what a board did with a model."""

import argparse
from dataclasses import asdict
from pathlib import Path

from firmwright.base.errors import MismatchError
from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.evidence.checking import check_evidence, find_model_file
from firmwright.flows.evidence.findings import Finding, Verdict, not_confirmed
from firmwright.flows.evidence.record import read_evidence
from firmwright.flows.model.model import load_model


def run(args: argparse.Namespace) -> Outcome:
    file = Path(args.file)
    evidence = read_evidence(file)
    path = Path(args.model) if args.model else find_model_file(evidence, file.parent)
    findings = check_evidence(
        evidence,
        load_model(path),
        board_dirs=args.board_dirs,
        input_file=args.input,
    )
    counts: dict[str, int] = {}
    for verdict in Verdict:
        counts[verdict] = sum(finding.verdict is verdict for finding in findings)
    data = {
        "model": evidence.model.name,
        "board": evidence.board,
        "counts": counts,
        "not_confirmed": list(not_confirmed(findings)),
        "findings": [asdict(finding) for finding in findings],
    }
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    text = f"{format_findings(findings)}\n\n{summary}"
    if rest := not_confirmed(findings):
        text += f"\nNOT CONFIRMED: {', '.join(rest)}"
    return Outcome(data, text, _error(args, findings))


def _error(
    args: argparse.Namespace, findings: tuple[Finding, ...]
) -> MismatchError | None:
    """Return the error if a statement differs, or with --strict is not confirmed."""
    differing = sum(finding.verdict is Verdict.DIFFERS for finding in findings)
    if differing:
        subject = (
            "1 statement differs"
            if differing == 1
            else f"{differing} statements differ"
        )
        what = f"{subject} from what this computer made."
        hint = "ask the sender for the model, the board's files, and a new file."
        return MismatchError(what, where=args.file, hint=hint)
    rest = not_confirmed(findings)
    if not args.strict or not rest:
        return None
    what = f"{', '.join(rest)}: not confirmed by this computer."
    hint = "see the reasons above; install the versions that the file names."
    return MismatchError(what, where=args.file, hint=hint)


def format_findings(findings: tuple[Finding, ...]) -> str:
    rows = [(item.statement, str(item.verdict), item.reason) for item in findings]
    return format_table(("statement", "", "why"), rows)
