"""`firmwright sbom`: what a project's firmware consists of, as CycloneDX."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from firmwright.cli.shared_options import Outcome
from firmwright.flows.model import write_file
from firmwright.flows.sbom import project_sbom

NAME = "sbom"
HELP = "write a project's bill of materials (CycloneDX)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the project that compile wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="instead of standard output")


def run(args: argparse.Namespace) -> Outcome:
    bill = project_sbom(Path(args.folder), os.environ)
    text = json.dumps(bill, indent=2)
    if not args.output:
        return Outcome({"bom": bill}, text)
    write_file(args.output, f"{text}\n".encode())
    count = len(bill["components"])
    said = f"{args.output}: CycloneDX {bill['specVersion']}, {count} components."
    return Outcome({"bom": bill, "file": args.output}, said)
