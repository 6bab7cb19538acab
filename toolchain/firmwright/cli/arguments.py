"""Models and compilations from the arguments that several verbs share.

Options that set a field of `pipeline.Options` are stored under its name. An omitted one
is None, an empty list, or the default of a flag.
"""

import argparse
from dataclasses import fields
from pathlib import Path

from firmwright.cli.model_argument import model_overrides
from firmwright.flows.model.earlier_program import options_of_program, read_program
from firmwright.flows.model.given_options import OptionValues, to_option_values
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.model.partition_methods import (
    PartitionChoice,
    PartitionRequest,
    partition_model,
)
from firmwright.flows.model.tuning_log import read_tuning
from firmwright.flows.predict.remedies import compile_or_advise
from firmwright.partitioning.custom_ops import load_custom_ops
from firmwright.pipeline import Compilation, Options


def load_model_argument(args: argparse.Namespace) -> Model:
    name = getattr(args, "name", None) or ""
    for file in args.custom_op:
        load_custom_ops(Path(file))
    return load_model(
        args.model,
        name=name,
        reference_model=args.reference_model,
        overrides=model_overrides(args),
    )


def compile_options(args: argparse.Namespace) -> OptionValues:
    """Return the compile options that the user gave, as fields of `Options`."""
    values: dict[str, object] = {}
    for field in fields(Options):
        value = getattr(args, field.name, None)
        is_unset_flag = isinstance(value, bool) and value == field.default
        if value not in (None, []) and not is_unset_flag:
            values[field.name] = tuple(value) if isinstance(value, list) else value
    options = to_option_values(values)
    log = options.get("tuning")
    if isinstance(log, str):
        options["tuning"] = read_tuning(log)
    earlier = options.pop("update_of", None)
    if isinstance(earlier, str):
        options = {**options_of_program(read_program(earlier), earlier), **options}
    return options


def given_options(args: argparse.Namespace) -> set[str]:
    """Return the names of compile options on the command line, not in the project."""
    return compile_options(args).keys() - getattr(args, "from_project", frozenset())


def prepare_compilation(args: argparse.Namespace) -> tuple[Model, OptionValues]:
    """Return the model, partitioned according to --partition, and its options."""
    choice = choose_partition(args)
    return choice.model, choice.options


def choose_partition(args: argparse.Namespace) -> PartitionChoice:
    """Partition the model according to --partition."""
    port = getattr(args, "port", "") or ""
    flash = getattr(args, "flash_command", "") or ""
    timeout_s = getattr(args, "timeout", None)
    request = PartitionRequest(
        args.partition, args.partition_log, port, flash, timeout_s
    )
    return partition_model(load_model_argument(args), compile_options(args), request)


def compile_from_args(args: argparse.Namespace) -> Compilation:
    model, options = prepare_compilation(args)
    return compile_or_advise(model, options)
