"""`firmwright sbom`: what a project's firmware consists of, as CycloneDX."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli.base import Outcome
from firmwright.flows.bills import project_bill

NAME = "sbom"
HELP = "write a project's bill of materials (CycloneDX)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the project that compile wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="instead of standard output")


def run(args: argparse.Namespace) -> Outcome:
    bill = project_bill(Path(args.folder), os.environ)
    text = json.dumps(bill, indent=2)
    if not args.output:
        return Outcome({"bom": bill}, text)
    try:
        Path(args.output).write_text(text + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror}.", where=args.output
        ) from error
    count = len(bill["components"])
    said = f"{args.output}: CycloneDX {bill['specVersion']}, {count} components."
    return Outcome({"bom": bill, "file": args.output}, said)
