"""`firmwright partition`: assign operators to targets and write the module."""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.model.model import Model, partition, save_module, write_file
from firmwright.flows.model.partition_methods import EAGER, NONE, search_methods
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.offload import requested_shares
from firmwright.partitioning.partition_result import (
    PartitionedRegion,
    PartitionResult,
    RegionAlternative,
    RegionCost,
)
from firmwright.partitioning.target_resolution import target_of
from firmwright.targets.kernel_builder import flatten_calls


def run(args: argparse.Namespace) -> Outcome:
    searches = search_methods()
    if args.save_partition and args.partition not in searches:
        hint = f"add --partition {' or '.join(searches)}."
        raise UsageError("--save-partition needs a search.", hint=hint)
    if not args.output and not args.save_partition:
        raise UsageError(
            "no output was given.", hint="add -o FILE, or --save-partition FILE."
        )
    search_result: PartitionResult | None = None
    if args.partition in searches:
        choice = arguments.choose_partition(args)
        search_result, model = choice.partition, choice.model
    else:
        model = _partitioned_model(args)
    if args.save_partition and search_result is not None:
        write_file(args.save_partition, search_result.text().encode())
    if args.output:
        save_module(model.module, args.output)
    shares = target_shares(model.module)
    data: dict[str, object] = {
        "model": model.name,
        "file": args.output,
        "targets": shares,
    }
    texts: list[str] = []
    if search_result is not None:
        data["search"] = search_result.as_json()
        texts.append(_format_search(search_result))
    rows = [(share.target, share.operators, len(share.functions)) for share in shares]
    texts.append(format_table(("target", "operators", "functions"), rows))
    rejections = model.module.results.rejections
    if rejections:
        open_rows: list[tuple[str, str, str, str]] = []
        for item in rejections:
            open_rows.append((item.op, item.tensor, item.target, item.reason))
        head = ("on the core", "tensor", "target", "reason")
        texts.append(format_table(head, open_rows))
    files = (args.save_partition, args.output)
    texts.append("\n".join(filter(None, files)))
    return Outcome(data, "\n\n".join(texts))


def _partitioned_model(args: argparse.Namespace) -> Model:
    if args.partition == EAGER:
        model = arguments.load_model_argument(args)
        return partition(model, args.target, args.numerics, offload=dict(args.offload))
    model, options = arguments.prepare_compilation(args)
    if args.partition == NONE and options["target"] and not args.offload:
        return partition(model, options["target"], args.numerics)
    return model


def _format_search(result: PartitionResult) -> str:
    parts: list[Sequence[Cell]] = []
    for part in result.parts:
        costs = [_format_alternative(other, part) for other in part.alternatives]
        ops, cost = " ".join(part.ops), _format_cost(part.cost)
        parts.append((ops, part.target, cost, ", ".join(costs)))
    programs: list[Sequence[Cell]] = []
    for how, total in result.totals.items():
        name = how + (" (chosen)" if how == result.chosen else "")
        sizes = total.workspace_bytes or None, total.flash_bytes
        programs.append((name, total.count, *sizes, total.reason))
    regions = format_table(["operators", "target", result.unit, "alternatives"], parts)
    head = ["program", result.unit, "workspace bytes", "image's flash", "lost by"]
    return f"{regions}\n\n{format_table(head, programs)}"


def _format_alternative(other: RegionAlternative, part: PartitionedRegion) -> str:
    calls = "" if other.makes == part.makes else f" for {len(other.makes)} operators"
    reason = f": {other.reason}" if other.reason else ""
    return f"{other.target}{calls} {_format_cost(other.cost)}{reason}"


def _format_cost(cost: RegionCost) -> Cell:
    if cost.status == "ok":
        return f"{cost.count:,}" + (" (modeled)" if cost.how == "modeled" else "")
    return f"failed: {cost.reason}" if cost.status == "failed" else "unknown"


@dataclass(frozen=True, slots=True)
class TargetShare:
    """The numbers of operators and functions of one target."""

    target: str
    operators: int
    functions: tuple[str, ...] = ()


def target_shares(module: IRModule) -> tuple[TargetShare, ...]:
    """Return the shares in the targets' order; the core has operators without one.

    An operator that several targets compute counts for each of them.
    """
    graphs = [func for func in module.functions.values() if isinstance(func, Function)]
    # The functions inside regions, whose operators are counted with the regions.
    inner: set[str] = set()
    unassigned = 0
    for func in graphs:
        for call in func.body:
            if target_of(func) and call.op.startswith("@"):
                inner.add(call.op.removeprefix("@"))
            elif not target_of(func) and not call.op.startswith("@"):
                unassigned += 1
    divided: Counter[str] = Counter()
    for division in requested_shares(module).values():
        divided.update(share.target for share in division[1:])
    shares: list[TargetShare] = []
    for name, target in module.targets.items():
        functions: list[Function] = []
        for func in graphs:
            if target_of(func) == name and func.name not in inner:
                functions.append(func)
        count = sum(len(flatten_calls(func, module)) for func in functions)
        count += divided[name]
        own = tuple(func.name for func in functions)
        shares.append(TargetShare(str(target), count, own))
    idle = [index for index, share in enumerate(shares) if not share.functions]
    names = [*module.targets]
    if idle and names[idle[0]] == "cpu":
        shares[idle[0]] = TargetShare(shares[idle[0]].target, unassigned)
    elif unassigned:
        shares.append(TargetShare("the board's core", unassigned))
    return tuple(shares)
