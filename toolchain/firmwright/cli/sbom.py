"""`firmwright sbom`: write the SBOM of a project's firmware (CycloneDX)."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from firmwright.cli.verb import Outcome
from firmwright.flows.model import write_file
from firmwright.flows.sbom import project_sbom

NAME = "sbom"
HELP = "write a project's SBOM (CycloneDX)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a project folder written by compile")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="output file (default: standard output)"
    )


def run(args: argparse.Namespace) -> Outcome:
    bill = project_sbom(Path(args.folder), os.environ)
    text = json.dumps(bill, indent=2)
    if not args.output:
        return Outcome({"bom": bill}, text)
    write_file(args.output, f"{text}\n".encode())
    count = len(bill["components"])
    message = f"{args.output}: CycloneDX {bill['specVersion']}, {count} components."
    return Outcome({"bom": bill, "file": args.output}, message)
