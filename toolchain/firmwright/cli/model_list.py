"""Arguments for one or several models, which share one firmware or package."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.flows.model.compilation import PassObserver
from firmwright.flows.predict.remedies import compile_or_advise
from firmwright.pipeline import Compilation


def check_several_models(
    args: argparse.Namespace, options: Mapping[str, object]
) -> None:
    """Raise UsageError if --concurrent or an option does not fit the models' number."""
    if len(args.models) == 1:
        if args.concurrent:
            hint = "omit it, or name more models."
            raise UsageError("--concurrent needs several models.", hint=hint)
        return
    single = {"--reference-model": args.reference_model, **options}
    rejected = [option for option, value in single.items() if value]
    if rejected:
        what = f"{rejected[0]} accepts a single model; {len(args.models)} were given."
        raise UsageError(what, hint="compile the models separately with it.")


def compile_several_from_args(
    args: argparse.Namespace, watch: PassObserver | None = None
) -> tuple[Compilation, ...]:
    """Compile each of `args.models`, with its part of --name."""
    names = args.name.split(",") if args.name else [None] * len(args.models)
    if len(names) != len(args.models):
        what = f"--name needs {len(args.models)} names, separated by commas."
        stems = ",".join(Path(path).stem for path in args.models)
        raise UsageError(what, hint=f"--name {stems}.")
    parts = []
    for path, name in zip(args.models, names, strict=True):
        one = argparse.Namespace(**{**vars(args), "model": path, "name": name})
        model, options = arguments.prepare_compilation(one)
        parts.append(compile_or_advise(model, options, watch=watch))
    return tuple(parts)
