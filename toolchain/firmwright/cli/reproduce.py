"""`firmwright reproduce`: check that a project's folder equals a new compilation."""

from __future__ import annotations

import argparse
from pathlib import Path

from firmwright.base.errors import MismatchError
from firmwright.cli.shared_options import add_boards_dir_option
from firmwright.cli.verb import Outcome
from firmwright.flows.reproducibility import ReproductionResult, reproduce

NAME = "reproduce"
HELP = "compile a project's models again and compare every file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a project folder written by compile -o")
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", help="the model files, in the order given to compile"
    )
    parser.add_argument("--tuning", metavar="LOG", help="the tuning log given to compile")
    add_boards_dir_option(parser)


def run(args: argparse.Namespace) -> Outcome:
    folder = Path(args.folder)
    result = reproduce(
        folder,
        [Path(model) for model in args.models],
        tuning=Path(args.tuning) if args.tuning else None,
        board_dirs=args.board_dirs,
    )
    data = {
        "model": result.model,
        "exact": result.exact,
        "same": result.same,
        "different": list(result.different),
        "missing": list(result.missing),
    }
    if result.exact:
        return Outcome(data, f"{result.model}: all {result.same} files are identical.")
    return Outcome(data, error=_error(result, folder))


def _error(result: ReproductionResult, folder: Path) -> MismatchError:
    differences = [
        f"{len(paths)} {verb} ({', '.join(paths[:3])}{', ...' * (len(paths) > 3)})"
        for verb, paths in (("differ", result.different), ("are missing", result.missing))
        if paths
    ]
    return MismatchError(
        f"{result.model}: of {result.same + len(result.different) + len(result.missing)} files "
        f"{' and '.join(differences)}.",
        where=str(folder),
        hint="undo manual changes of generated files, or compile again.",
    )
