"""Partition a model by method: `eager`, `none`, one of an extension, or a result file.

`none` assigns the open operators to the core. The methods of extensions search for a
partition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from firmwright.base.errors import UsageError
from firmwright.base.extensions import merge_tables
from firmwright.base.input_files import read_input_text
from firmwright.boards import load_board
from firmwright.flows.model.compilation import options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model
from firmwright.ir.module import IRModule
from firmwright.partitioning.byoc import run_partition, run_pre_partition
from firmwright.partitioning.partition_result import (
    PartitionedRegion,
    PartitionResult,
    check_tensors,
    make_strategy,
    read_partition,
    with_shares,
)
from firmwright.partitioning.pattern_matching import active_backends, annotated_cover
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.target_resolution import (
    CORE_TARGET_NAME,
    find_core,
    is_backend,
    unique_target_names,
)
from firmwright.pipeline import Options, configure_module
from firmwright.pipeline.pass_list import run_imported
from firmwright.targets.registry import parse_targets

EAGER, NONE = "eager", "none"


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """The method or file (`how`), the log, and a board's port and flash command."""

    how: str = EAGER
    log: str = ""
    port: str = ""
    flash: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """A model with its functions for targets, and the options for its compilation.

    `partition` is the result of a search, with the costs that it compared.
    """

    model: Model
    options: OptionValues
    partition: PartitionResult | None = None


class PartitionMethod(Protocol):
    """A search for a partition, which `--partition` selects by name."""

    def __call__(
        self, model: Model, options: OptionValues, request: PartitionRequest
    ) -> PartitionChoice:
        """Return the model in portable form (`make_portable`) and the search result."""


def search_methods() -> Mapping[str, PartitionMethod]:
    """Return the methods of extensions by name."""
    return merge_tables(
        None, "PARTITION_METHODS", lambda extension: extension.partition_methods
    )


def partition_model(
    model: Model, options: OptionValues, request: PartitionRequest
) -> PartitionChoice:
    """Assign the model's operators to targets by the method of the request."""
    match request.how:
        case "eager":
            return PartitionChoice(model, options)
        case "none" if options.get("offload"):
            chosen = options_for(model.module, options)
            return PartitionChoice(offload_only(model, chosen), options)
        case "none":
            core = _core_of(options.get("target", ""))
            return PartitionChoice(model, {**options, "target": core})
        case how if method := search_methods().get(how):
            return method(model, options, request)
        case file:
            parts = read_partition(_read(Path(file)), file)
            chosen = options_for(model.module, options)
            return PartitionChoice(apply_partition(model, chosen, parts, file), options)


def _core_of(target: str) -> str:
    """Return the core among the targets of --target, or "" for the board's core."""
    core = find_core(parse_targets(target)) if target else None
    return str(core) if core else ""


def _read(file: Path) -> str:
    try:
        return read_input_text(file)
    except (OSError, UnicodeDecodeError) as error:
        methods = (EAGER, *search_methods(), NONE)
        what = (
            f"--partition must be {', '.join(methods)} or a file, and {file} cannot be "
            "read"
        )
        hint = (
            "firmwright partition MODEL --partition collage --save-partition FILE "
            "writes one."
        )
        raise UsageError(f"{what}: {error}.", hint=hint) from error


def apply_partition(
    model: Model, options: Options, parts: Sequence[PartitionedRegion], where: str
) -> Model:
    """Return the model with the regions of a result from the file `where`."""
    module = prepare_module(model, options)
    check_tensors(parts, module, where)
    divided = run_partition(module, PassTimer(), make_strategy(parts, where))
    divided = with_shares(divided, parts)
    return make_portable(model, divided, options)


def offload_only(model: Model, options: Options) -> Model:
    """Assign the operators that the user offloads, and leave the others open."""
    module = prepare_module(model, options)
    divided = run_partition(module, PassTimer(), annotated_cover)
    return make_portable(model, divided, options)


def make_portable(model: Model, divided: IRModule, options: Options) -> Model:
    """Return `model` with the functions of `divided`, without the facts of a board."""
    targets = parse_targets(options.target)
    table = unique_target_names(filter(is_backend, targets))
    core = find_core(targets)
    if core:
        table = {CORE_TARGET_NAME: core, **table}
    module = model.module
    results = replace(
        module.results,
        partitioned=divided.results.partitioned,
        user_passes=divided.results.user_passes,
        offload_shares=divided.results.offload_shares,
    )
    module = replace(
        divided,
        entry_name=module.entry_name,
        origin=module.origin,
        targets=table,
        pools=module.pools,
        io=module.io,
        settings=module.with_numerics(options.numerics).settings,
        results=results,
        attrs=module.attrs,
    )
    return replace(model, module=module)


def prepare_module(model: Model, options: Options) -> IRModule:
    """Return the module to partition; UsageError if lowered or without backends."""
    if model.module.is_started:
        what = "the module is lowered already, so its target is fixed."
        raise UsageError(
            what, where=model.file or model.name, hint="the model file itself."
        )
    board = load_board(options.board, options.board_dirs)
    module = configure_module(model.module, board, options)
    active = active_backends(module)
    if not active:
        what = "there is nothing to choose: no backend is among the targets."
        raise UsageError(
            what, hint="--target 'npu1, ...'; firmwright backends lists them."
        )
    return run_pre_partition(run_imported(module, options), PassTimer(), active)
