"""The partition of a model as a result: regions, targets, costs and alternatives.

Calls are identified by the tensors that they define. A result that is applied is
matched again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

from firmwright.base.errors import UsageError
from firmwright.base.json_input import (
    JsonObject,
    as_objects,
    as_text,
    as_texts,
    parse_json,
)
from firmwright.base.value_kinds import OBJECTS, TEXT, TEXTS, Kind, wrong_values
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.partitioning.offload import parse_shares
from firmwright.partitioning.pattern_matching import (
    ActiveBackend,
    PartitionStrategy,
    all_matches,
)
from firmwright.partitioning.regions import CallGroup
from firmwright.partitioning.target_resolution import (
    CORE_TARGET_NAME,
    targets_by_tensor,
)

PARTITION_SCHEMA = 1
CostStatus: TypeAlias = Literal["ok", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class RegionCost:
    """The cost of one run of a region; the figures are valid only with the status ok.

    `how` is the origin of `count`: measured, modeled, or free (a view, or a part
    without a choice). `scratch` is workspace and inner tensors by pool.
    """

    status: CostStatus
    count: int = 0
    how: str = "measured"
    scratch: Mapping[str, int] = field(default_factory=dict)
    constants_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RegionAlternative:
    """Another target for all calls of a region, or another grouping of some of them.

    `target` is a target or shares of several, as in `--offload`. `makes` are the first
    outputs of the calls, `entries` the pattern entries that cover them. `reason` is why
    it was not chosen, "" if that follows from another region.
    """

    target: str
    makes: tuple[str, ...]
    entries: tuple[str, ...]
    cost: RegionCost
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionedRegion:
    """Calls that one target executes together, with the alternatives.

    `target` may be the shares of several targets in one call, as in `--offload`.
    `makes` are the first outputs of the calls, `ops` their operators, and `entries` the
    pattern entries that cover them.
    """

    target: str
    makes: tuple[str, ...]
    ops: tuple[str, ...]
    entries: tuple[str, ...]
    cost: RegionCost
    alternatives: tuple[RegionAlternative, ...] = ()

    @property
    def first_target(self) -> str:
        return parse_shares(self.target)[0].target


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """The cost of a whole program; `count` is None if it could not be built or run.

    `reason` is why it was not chosen.
    """

    count: int | None
    pools: Mapping[str, int] = field(default_factory=dict)
    flash_bytes: int | None = None
    reason: str = ""

    @property
    def workspace_bytes(self) -> int:
        return sum(self.pools.values())


def compare_programs(
    totals: Mapping[str, ProgramCost], chosen: str
) -> dict[str, ProgramCost]:
    """Return the costs with the reasons why programs were not chosen."""
    best = totals[chosen]
    compared: dict[str, ProgramCost] = {}
    for how, total in totals.items():
        reason = total.reason
        if how != chosen and total.count is not None and best.count is not None:
            more = total.count - best.count
            more_bytes = total.workspace_bytes - best.workspace_bytes
            if more > 0:
                reason = f"{more:,} more"
            elif more_bytes > 0:
                reason = f"{more_bytes:,} bytes more"
            else:
                reason = "equal"
        compared[how] = replace(total, reason=reason)
    return compared


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result of a search; `totals` has program costs by partition method."""

    model: str
    board: str
    targets: str
    goal: str
    method: str
    unit: str
    chosen: str
    parts: tuple[PartitionedRegion, ...]
    totals: Mapping[str, ProgramCost] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {"schema": PARTITION_SCHEMA, **asdict(self)}

    def text(self) -> str:
        return json.dumps(self.as_json(), indent=2) + "\n"


# ---- a result that is applied --------------------------------------------------------


def make_strategy(
    regions: Sequence[PartitionedRegion], where: str
) -> PartitionStrategy:
    """Return a strategy of these regions; it raises UsageError if one has no match."""

    def choose(
        function: Function, module: IRModule, active: Sequence[ActiveBackend]
    ) -> list[CallGroup]:
        indices: dict[str, int] = {}
        for index, call in enumerate(function.body):
            if not call.op.startswith("@"):
                indices[call.outputs[0].name] = index
        matches: dict[tuple[str, tuple[int, ...]], CallGroup] = {}
        for match in all_matches(function, module, active):
            matches[match.target, match.calls] = match
        groups: list[CallGroup] = []
        for region in regions:
            if region.target == CORE_TARGET_NAME or region.makes[0] not in indices:
                continue
            calls = sorted(indices[name] for name in region.makes if name in indices)
            group = matches.get((region.first_target, tuple(calls)))
            if group is None or len(calls) < len(region.makes):
                what = (
                    f"{region.target} does not take {', '.join(region.makes)} as one "
                    "part."
                )
                hint = f"a target of the part's alternatives, or {CORE_TARGET_NAME}."
                raise UsageError(what, where=where, hint=hint)
            groups.append(group)
        _check_disjoint(groups, function, where)
        return groups

    return choose


def check_tensors(
    regions: Sequence[PartitionedRegion], module: IRModule, where: str
) -> None:
    """Raise UsageError for a tensor that is unknown or assigned to another target."""
    owners = targets_by_tensor(module)
    for region in regions:
        for name in region.makes:
            if name not in owners:
                message = f"no operator of the model makes the tensor {name}."
                hint = "the result of a search for this model."
                raise UsageError(message, where=where, hint=hint)
            if owners[name] not in ("", region.first_target):
                owner = owners[name]
                message = f"the operator of {name} is assigned to {owner} already."
                raise UsageError(message, where=where, hint="the model file itself.")


def with_shares(module: IRModule, regions: Sequence[PartitionedRegion]) -> IRModule:
    """Return the module with the regions of several targets as offload requests."""
    requests: list[tuple[str, str]] = []
    for region in regions:
        if ":" in region.target:
            requests.append((region.makes[-1], region.target))
    shares = (*module.results.offload_shares, *requests)
    results = replace(module.results, offload_shares=tuple(dict.fromkeys(shares)))
    return replace(module, results=results)


def _check_disjoint(
    groups: Sequence[CallGroup], function: Function, where: str
) -> None:
    """Raise UsageError if two groups have a call in common."""
    covered: set[int] = set()
    for group in groups:
        for index in sorted(covered & set(group.calls)):
            tensor = function.body[index].outputs[0].name
            raise UsageError(f"two parts have the tensor {tensor}.", where=where)
        covered |= set(group.calls)


def _is_schema(value: object) -> bool:
    return type(value) is int and value == PARTITION_SCHEMA


_NAMES = Kind("a list of names", lambda names: TEXTS.includes(names) and names != [])
_SCHEMA = Kind(str(PARTITION_SCHEMA), _is_schema)
_FILE_KINDS = {"schema": _SCHEMA, "parts": OBJECTS}
_PART_KINDS = {"target": TEXT, "makes": _NAMES, "ops": TEXTS, "entries": TEXTS}


def read_partition(text: str, where: str) -> tuple[PartitionedRegion, ...]:
    """Return the parts in a partition file; UsageError for the first wrong value."""
    try:
        data = parse_json(text)
    except ValueError as error:
        raise _partition_error(f"it is not JSON: {error}", where) from error
    if not isinstance(data, Mapping):
        raise _partition_error("it is not a JSON object", where)
    for problem in wrong_values(data, _FILE_KINDS, ""):
        raise _partition_error(f"it {problem}", where)
    rows = as_objects(data["parts"])
    return tuple(_part(row, index, where) for index, row in enumerate(rows))


def _part(row: JsonObject, index: int, where: str) -> PartitionedRegion:
    """Return the region of a file's part; its costs and alternatives are not read."""
    values: JsonObject = {"ops": [], "entries": [], **row}
    for problem in wrong_values(values, _PART_KINDS, f"parts[{index}]."):
        raise _partition_error(f"it {problem}", where)
    target = as_text(values["target"])
    try:
        parse_shares(target)
    except ValueError as error:
        what = f"parts[{index}].target is {target}, but {error}"
        raise _partition_error(what, where) from error
    return PartitionedRegion(
        target=target,
        makes=tuple(as_texts(values["makes"])),
        ops=tuple(as_texts(values["ops"])),
        entries=tuple(as_texts(values["entries"])),
        cost=RegionCost("unknown"),
    )


def _partition_error(reason: str, where: str) -> UsageError:
    what = f"this is not a partition result: {reason}."
    hint = (
        "firmwright partition MODEL --partition collage --save-partition FILE writes "
        "one."
    )
    return UsageError(what, where=where, hint=hint)
