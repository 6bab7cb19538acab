"""`firmwright reproduce`: check that a project equals a new compilation's result."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.artifacts import MARKER
from firmwright.base.errors import MismatchError, ModelError, UsageError
from firmwright.base.json_input import Json, JsonObject, as_object, as_objects, as_text
from firmwright.base.templates import template_errors
from firmwright.base.version import VERSION
from firmwright.cli.bound import with_bound
from firmwright.cli.verb import Outcome
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.earlier_program import program_of
from firmwright.flows.model.given_options import OptionValues, to_option_values
from firmwright.flows.model.model import load_model
from firmwright.flows.model.tuning_log import read_tuning
from firmwright.ir.module import Pass
from firmwright.ops.tuning_records import TuningRecords
from firmwright.package.metadata_reader import (
    check_metadata,
    facts_of_models,
    read_metadata,
)
from firmwright.package.option_serialization import (
    PASSES_OPTION,
    TUNING_OPTION,
    UPDATE_OPTION,
    deserialize_options,
)
from firmwright.pipeline import Bundle, Compilation, Options, bundle
from firmwright.pipeline.user_passes import make_user_pass


def run(args: argparse.Namespace) -> Outcome:
    folder = Path(args.folder)
    result = reproduce(
        folder,
        [Path(model) for model in args.models],
        tuning=Path(args.tuning) if args.tuning else None,
        passes=[make_user_pass(text) for text in args.passes],
        board_dirs=args.board_dirs,
    )
    data = {
        "model": result.model,
        "exact": result.exact,
        "same": result.same,
        "different": result.different,
        "missing": result.missing,
    }
    if result.exact:
        return Outcome(data, f"{result.model}: all {result.same} files are identical.")
    return Outcome(data, error=_error(result, folder))


def _error(result: ReproductionResult, folder: Path) -> MismatchError:
    differences: list[str] = []
    for verb, paths in (("differ", result.different), ("are missing", result.missing)):
        if paths:
            named = ", ".join(paths[:_NAMED_PATHS])
            more = ", ..." if len(paths) > _NAMED_PATHS else ""
            differences.append(f"{len(paths)} {verb} ({named}{more})")
    total = result.same + len(result.different) + len(result.missing)
    return MismatchError(
        f"{result.model}: of {total} files {' and '.join(differences)}.",
        where=str(folder),
        hint="undo manual changes of generated files, or compile again.",
    )


_NAMED_PATHS: Final = 3
"""The number of files that an error names."""


_USED_FACTS: Final = (
    "bound",
    "choices",
    "concurrent",
    "model",
    "options",
    "source_sha256",
)


@dataclass(frozen=True, slots=True)
class ReproductionResult:
    """The relative paths of differing and missing files; `same` counts equal files."""

    model: str
    same: int
    different: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not self.different and not self.missing


def reproduce(
    folder: Path,
    models: Sequence[Path],
    *,
    tuning: Path | None = None,
    passes: Sequence[Pass] = (),
    board_dirs: Sequence[Path] = (),
) -> ReproductionResult:
    """Compile `models` with the options recorded in `folder` and compare every file."""
    facts = read_project(folder)
    parts = facts_of_models(facts)
    if len(models) != len(parts):
        what = (
            f"the folder was compiled from {len(parts)} models, but {len(models)} were "
            "given."
        )
        names = ", ".join(as_text(part["model"]) for part in parts)
        hint = f"name the files of {names}."
        raise UsageError(what, where=str(folder), hint=hint)
    log = read_tuning(tuning) if tuning else None
    compilations: list[Compilation] = []
    for part, path in zip(parts, models, strict=True):
        compilations.append(_compile(part, path, folder, log, passes, *board_dirs))
    whole: Compilation | Bundle = compilations[0]
    if "models" in facts:
        whole = bundle(compilations, concurrent=facts["concurrent"] is True)
    tree = whole.project()
    if "bound" in facts:
        try:
            tree = with_bound(compilations[0], as_object(facts["bound"]))
        except template_errors() as error:
            what = "metadata.json has a bound that cannot be read."
            hint = "run bound again."
            raise ModelError(what, where=str(folder), hint=hint) from error
    return _compare(folder, tree.encoded(), as_text(facts["model"]))


def read_project(folder: Path) -> JsonObject:
    """Return the content of metadata.json; UsageError for one of another version."""
    facts = read_metadata(folder, ["tool_version"])
    version = facts_of_models(facts)[0]["tool_version"]
    if version != VERSION:
        what = (
            f"the folder was written by version {version}; this is version {VERSION}."
        )
        hint = f"install that version: pip install firmwright=={version}."
        raise UsageError(what, where=str(folder), hint=hint)
    check_metadata(facts, str(folder / MARKER), _USED_FACTS)
    return facts


def _compile(
    facts: JsonObject,
    path: Path,
    folder: Path,
    log: TuningRecords | None,
    passes: Sequence[Pass],
    *board_dirs: Path,
) -> Compilation:
    model = load_model(path)
    name = as_text(facts["model"])
    recorded_digest = as_text(facts["source_sha256"])
    if model.module.origin.sha256 != recorded_digest:
        what = (
            f"this is not the file that {name} was compiled from: its SHA-256 differs."
        )
        hint = f"give the file with SHA-256 {recorded_digest[:16]}..."
        raise UsageError(what, where=str(path), hint=hint)
    recorded = as_object(facts["options"])
    digest = recorded.get(TUNING_OPTION, "")
    if digest != (log.digest if log else ""):
        how = "with other" if digest else "without"
        what = f"{name} was compiled {how} measurements."
        hint = "give the same log with --tuning." if digest else "omit --tuning."
        raise UsageError(what, where=str(folder), hint=hint)
    options: OptionValues = {
        "board": "host",
        **to_option_values(deserialize_options(recorded, Options, folder / MARKER)),
        "board_dirs": board_dirs,
    }
    if log is not None:
        options["tuning"] = log
    written = recorded.get(PASSES_OPTION, [])
    options["passes"] = _check_passes(written, passes, name, folder)
    if UPDATE_OPTION in recorded:
        options["update_of"] = program_of(facts, folder / MARKER)
    return compile_for(model, **options)


def _check_passes(
    recorded: Json, given: Sequence[Pass], name: str, where: Path
) -> Sequence[Pass]:
    """Return the passes; raise UsageError unless they are the recorded ones."""
    passes: list[str] = []
    for own in given:
        passes.append(f"{own.name} after {own.after}, {own.origin}")
    expected: dict[str, JsonObject] = {}
    try:
        for step in as_objects(recorded):
            text = f"{step['name']} after {step['after']}, {step['origin']}"
            expected[text] = step
    except (KeyError, ValueError) as error:
        what = "the recorded passes cannot be read."
        raise ModelError(what, where=str(where)) from error
    for text, recorded_step in expected.items():
        if text not in passes:
            what = f"{name} was compiled with the pass {text}."
            function = str(recorded_step["origin"]).partition(" ")[0]
            place = recorded_step["after"]
            hint = f"install it and give --pass {function}@{place}."
            raise UsageError(what, hint=hint)
    if passes != [*expected]:
        listed = "; ".join(expected) or "no passes"
        what = f"{name} was compiled with {listed} of users."
        raise UsageError(what, hint="give --pass in this order.")
    return given


def _compare(
    folder: Path, files: Mapping[str, bytes], model: str
) -> ReproductionResult:
    different, missing = [], []
    for path, data in sorted(files.items()):
        if not (folder / path).is_file():
            missing.append(path)
        elif (folder / path).read_bytes() != data:
            different.append(path)
    same = len(files) - len(different) - len(missing)
    return ReproductionResult(model, same, tuple(different), tuple(missing))
