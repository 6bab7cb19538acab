"""`firmwright export` with manifests of wake words, in any format for C sources."""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli.arguments import compile_options
from firmwright.cli.export import package_metadata, show_package
from firmwright.cli.model_list import compile_several_from_args
from firmwright.cli.verb import Outcome
from firmwright.extensions.wake_words.component import EsphomeFormat
from firmwright.extensions.wake_words.front_end import FRONT_END, make_front_end
from firmwright.extensions.wake_words.listening import PREFIX, Listening, rows_of_run
from firmwright.extensions.wake_words.manifest import WakeWord, read_manifest
from firmwright.flows.export.package_export import export_model
from firmwright.flows.predict.remedies import compile_or_advise
from firmwright.package.export_format import (
    ExportFormat,
    TemplateFormat,
    find_export_format,
)
from firmwright.pipeline import bundle

_MOST_WORDS = 32
"""The bits of a mask of detected words."""
_ESPHOME = "esphome"
_UNUSABLE_OPTIONS: Mapping[str, str] = {
    "concurrent": "--concurrent",
    "name": "--name",
    "pipeline_runs": "--pipeline-runs",
    "reference_model": "--reference-model",
    "with_tests": "--with-tests",
}
"""Options for packages whose users call the models."""


def _export(args: argparse.Namespace) -> Outcome:
    words = [read_manifest(Path(path)) for path in args.models]
    _check_words(words)
    _check_options(args)
    listening = Listening(words)
    form = _format(args.format, listening)
    if args.numerics is None:
        args.numerics = "tflm"
    if not args.package_name:
        args.package_name = PREFIX
    models = [str(word.model) for word in words]
    parts = compile_several_from_args(
        argparse.Namespace(**{**vars(args), "models": models})
    )
    for part in parts:
        rows_of_run(part.summary)
    front = compile_or_advise(make_front_end(words[0].step_ms), compile_options(args))
    compiled = listening.add_sources(bundle((front, *parts)))
    package = export_model(
        compiled,
        form,
        args.output,
        with_tests=args.with_tests,
        measure_stack=args.measure_stack,
        metadata=package_metadata(args),
    )
    return show_package(compiled, args.format, package)


def _format(name: str, listening: Listening) -> ExportFormat:
    """Return the format of a name, whose examples listen."""
    if name == _ESPHOME:
        return EsphomeFormat(name=name, package=__package__, listening=listening)
    form = find_export_format(name)
    if not isinstance(form, TemplateFormat):
        what = f"the format {name} has no place for wake_words.c."
        raise UsageError(what, where="export", hint="--format makefile or cmake.")
    return replace(form, overrides=__package__)


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that wake_words.c has no place for."""
    wrong = [
        option for name, option in _UNUSABLE_OPTIONS.items() if getattr(args, name)
    ]
    if args.io_buffers not in (None, "arena"):
        wrong.append(f"--io-buffers {args.io_buffers}")
    if wrong:
        what = f"{wrong[0]} does not suit wake words: wake_words.c calls their models."
        raise UsageError(what, where="export", hint="omit it.")


def _check_words(words: Sequence[WakeWord]) -> None:
    if len(words) > _MOST_WORDS:
        what = f"{len(words)} wake words are more than {_MOST_WORDS}."
        raise UsageError(what, where="export", hint="fewer manifests.")
    steps = sorted({word.step_ms for word in words})
    if len(steps) > 1:
        several = " and ".join(f"{step} ms" for step in steps)
        what = f"the models take features every {several}."
        hint = "models with one feature_step_size, as they share the front end."
        raise UsageError(what, where="export", hint=hint)
    taken = {PREFIX, FRONT_END}
    names = Counter(word.identifier.lower() for word in words)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        what = f"two models have the name {twice[0]}."
        raise UsageError(what, where="export", hint="rename one file.")
    for word in words:
        if word.identifier.lower() in taken:
            what = f"the name {word.identifier} is that of other C in the package."
            raise UsageError(what, where=str(word.model), hint="rename the file.")
    voices = sum(word.is_voice for word in words)
    if voices == len(words):
        what = "a model of voice activity is not a wake word."
        raise UsageError(what, where="export", hint="add the manifest of a wake word.")
    if voices > 1:
        what = f"{voices} models of voice activity were given."
        raise UsageError(what, where="export", hint="one of them.")


EXPORT_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Outcome]] = {
    _ESPHOME: _export,
    ".json": _export,
}
