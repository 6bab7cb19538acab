"""`firmwright export --format esphome`: manifests of wake words as one component."""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli.arguments import compile_options
from firmwright.cli.export import package_metadata, show_package
from firmwright.cli.model_list import compile_several_from_args
from firmwright.cli.verb import Outcome
from firmwright.extensions.wake_words.component import WakeWordsFormat, rows_of_run
from firmwright.extensions.wake_words.front_end import make_front_end
from firmwright.extensions.wake_words.manifest import WakeWord, read_manifest
from firmwright.flows.export.package_export import export_model
from firmwright.flows.predict.remedies import compile_or_advise
from firmwright.pipeline import bundle

_MOST_WORDS = 32
"""The bits of a mask of detected words."""


def _export(args: argparse.Namespace) -> Outcome:
    words = [read_manifest(Path(path)) for path in args.models]
    _check_words(words)
    if args.concurrent:
        what = "--concurrent gives each model memory of its own."
        raise UsageError(what, where="export", hint="omit it: one word runs at a time.")
    if args.numerics is None:
        args.numerics = "tflm"
    models = [str(word.model) for word in words]
    parts = compile_several_from_args(
        argparse.Namespace(**{**vars(args), "models": models, "name": None})
    )
    for part in parts:
        rows_of_run(part.summary)
    front = compile_or_advise(make_front_end(words[0].step_ms), compile_options(args))
    form = WakeWordsFormat(
        name="esphome",
        package=__package__,
        words=words,
        front_end=front.summary.model,
    )
    compiled = bundle((front, *parts))
    package = export_model(
        compiled,
        form,
        args.output,
        with_tests=args.with_tests,
        measure_stack=args.measure_stack,
        metadata=package_metadata(args),
    )
    return show_package(compiled, form.name, package)


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
    names = Counter(word.identifier for word in words)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        what = f"two models have the name {twice[0]}."
        raise UsageError(what, where="export", hint="rename one file.")
    voices = sum(word.is_voice for word in words)
    if voices == len(words):
        what = "a model of voice activity is not a wake word."
        raise UsageError(what, where="export", hint="add the manifest of a wake word.")
    if voices > 1:
        what = f"{voices} models of voice activity were given."
        raise UsageError(what, where="export", hint="one of them.")


EXPORT_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Outcome]] = {
    "esphome": _export
}
