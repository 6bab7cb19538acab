"""`firmwright reproduce`: is a project's folder what its models compile to?"""

from __future__ import annotations

import argparse
from pathlib import Path

from firmwright.base.errors import MismatchError
from firmwright.cli.shared_options import Outcome
from firmwright.flows.reproducibility import ReproductionResult, reproduce

NAME = "reproduce"
HELP = "compile a project's models again and compare every file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="what compile -o wrote")
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", help="the model files, in the order of compile"
    )
    parser.add_argument("--tuning", metavar="LOG", help="the log that compile was given")
    parser.add_argument("--boards-dir", metavar="DIR", action="append", default=[], help="more")


def run(args: argparse.Namespace) -> Outcome:
    folder = Path(args.folder)
    found = reproduce(
        folder,
        [Path(model) for model in args.models],
        tuning=Path(args.tuning) if args.tuning else None,
        board_dirs=[Path(item) for item in args.boards_dir],
    )
    data = {
        "model": found.model,
        "exact": found.exact,
        "same": found.same,
        "different": list(found.different),
        "missing": list(found.missing),
    }
    if found.exact:
        return Outcome(data, f"{found.model}: all {found.same} files are the same, to the byte.")
    return Outcome(data, error=_error(found, folder))


def _error(found: ReproductionResult, folder: Path) -> MismatchError:
    said = [
        f"{len(paths)} {what} ({', '.join(paths[:3])}{', ...' * (len(paths) > 3)})"
        for what, paths in (("differ", found.different), ("are missing", found.missing))
        if paths
    ]
    return MismatchError(
        f"{found.model}: of {found.same + len(found.different) + len(found.missing)} files "
        f"{' and '.join(said)}.",
        where=str(folder),
        hint="what was changed by hand belongs beside the generated files, not into them.",
    )
