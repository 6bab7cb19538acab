"""Models, compilations and sessions from the arguments that several verbs share.

Options that set a field of `pipeline.Options` are stored under its name. An omitted one is None,
an empty list, or the default of a flag.
"""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.model_argument import model_overrides
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.model.earlier_program import options_of_program, read_program
from firmwright.flows.model.memory_advice import compile_or_advise
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.model.tuning_log import read_tuning
from firmwright.partitioning.custom_ops import load_custom_ops
from firmwright.pipeline import Compilation, Options
from firmwright.tune.partition_methods import PartitionRequest, partition_model


def load_model_argument(args: argparse.Namespace) -> Model:
    name = getattr(args, "name", None) or ""
    for file in args.custom_op:
        load_custom_ops(Path(file))
    return load_model(
        args.model, name=name, reference_model=args.reference_model, overrides=model_overrides(args)
    )


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the compile options that the user gave, as fields of `Options`."""
    options: dict[str, Any] = {}
    for field in fields(Options):
        value = getattr(args, field.name, None)
        is_unset_flag = isinstance(value, bool) and value == field.default
        if value not in (None, []) and not is_unset_flag:
            options[field.name] = tuple(value) if isinstance(value, list) else value
    if "tuning" in options:
        options["tuning"] = read_tuning(options["tuning"])
    if "update_of" in options:
        earlier = options.pop("update_of")
        options = {**options_of_program(read_program(earlier), earlier), **options}
    return options


def given_options(args: argparse.Namespace) -> set[str]:
    """Return the names of the compile options on the command line, without the project file's."""
    return compile_options(args).keys() - getattr(args, "from_project", frozenset())


def prepare_compilation(args: argparse.Namespace) -> tuple[Model, dict[str, Any]]:
    """Return the model, partitioned according to --partition, and the compile options."""
    return partition_model(
        load_model_argument(args), compile_options(args), partition_request(args)
    )


def partition_request(args: argparse.Namespace) -> PartitionRequest:
    port, flash = (getattr(args, name, "") or "" for name in ("port", "flash_command"))
    timeout_s = getattr(args, "timeout", None)
    return PartitionRequest(args.partition, args.partition_log, port, flash, timeout_s)


def compile_from_args(args: argparse.Namespace) -> Compilation:
    return compile_or_advise(*prepare_compilation(args))


def make_session_opener(args: argparse.Namespace) -> Any:
    variant = getattr(args, "variant", "release")
    if args.in_process and variant != "release":
        raise UsageError(
            f"a library in this process has no {variant} image.", hint="no --in-process."
        )

    def open_it(compiled: Compilation, **more: Any) -> ModelSession:
        in_process = args.in_process and more.get("variant", "release") == "release"
        settings = {
            "port": args.port,
            "timeout_s": args.timeout,
            "compiler": args.compiler,
            "variant": variant,
            "baud": args.baud,
        }
        return open_session(compiled, in_process=in_process, **{**settings, **more})

    return open_it
