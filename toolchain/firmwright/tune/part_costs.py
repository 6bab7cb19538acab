"""What the parts of a partition cost: many parts in one firmware, each called once.

In: a prepared module, parts of one of its functions. Out: a cost for each. A part stands beside the
others with inputs of its own types, given to its target, and goes through the whole compiler; what
its operators count is what it costs. A part that does not compile, build or run is found by halving
and keeps the reason. Where nothing can be measured the core's parts are priced by the cost model,
a backend's by its own (`Backend.cost`), which also goes before measuring; else they are unknown.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import FirmwrightError, InternalError, ToolMissingError
from firmwright.boards import load_board
from firmwright.flows.counting import count
from firmwright.flows.images import build_image
from firmwright.flows.inputs import generated
from firmwright.flows.predicting import predicted
from firmwright.flows.selftest import budget_bytes
from firmwright.ir.core import Span
from firmwright.ir.graph.evaluate import describe
from firmwright.ir.graph.nodes import CONTROL, Call, Function, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.nodes import PrimFunc
from firmwright.ir.tir.walk import prim_calls, used_constants
from firmwright.ir.tuning import Circumstances, layer_digest
from firmwright.ops.registry import op_table
from firmwright.partitioning.assign import divided
from firmwright.partitioning.choosing import CORE, active_backends
from firmwright.partitioning.collage import PartCost
from firmwright.partitioning.matching import match_of
from firmwright.partitioning.phases import Stopwatch
from firmwright.partitioning.regions import Group
from firmwright.pipeline import Compiled, Options, compile_model, configured, remaining
from firmwright.tune.measure import EXACT, Rig, flash_board, opener
from firmwright.tune.part_log import Key, PartLog, PartRecord

log = logging.getLogger(__name__)
PARTS_PER_IMAGE = 48
_ORDER = "order"
_FREE = PartCost("ok", how="free")
_UNKNOWN = PartCost("unknown", how="")
_SAMPLES = 4
"""The last of which is random: what is measured may depend on data a little."""


@dataclass(frozen=True)
class PartCosts:
    """Prices parts for a module on a board. `rig` is None where nothing can be measured."""

    module: IRModule
    options: Options
    rig: Rig | None
    at: Circumstances
    book: PartLog

    def of(self, function: Function, groups: Sequence[Group]) -> list[PartCost]:
        """A cost for each of `groups`, parts of `function`."""
        known = [self._known(function, group) for group in groups]
        keys = [self.key(function, group) for group in groups]
        open_keys: dict[Key, Group] = {}
        for key, group, cost in zip(keys, groups, known, strict=True):
            if cost is None:
                open_keys.setdefault(key, group)
        for batch in _batches(list(open_keys.items()), function, self._budget()):
            found = self._together(function, [group for _, group in batch])
            for (key, group), cost in zip(batch, found, strict=True):
                self.book.append(PartRecord(key, _what(function, group), cost))
        return [
            cost or self.book.find(key) or _UNKNOWN for key, cost in zip(keys, known, strict=True)
        ]

    def _budget(self) -> int:
        return budget_bytes(load_board(self.options.board, self.options.board_dirs))

    def _known(self, function: Function, group: Group) -> PartCost | None:
        """What need not be measured, or cannot be."""
        calls = [function.body[index] for index in group.calls]
        if any(call.op in CONTROL or call.op.startswith("@") for call in calls):
            return _FREE
        if not group.owner and all(op_table()[call.op].view for call in calls):
            return _FREE
        modelled = self._modelled(function, group)
        if modelled is not None:
            return PartCost("ok", modelled, "modelled")
        if self.rig is None and group.owner:
            return _UNKNOWN
        return self.book.find(self.key(function, group))

    def _modelled(self, function: Function, group: Group) -> int | None:
        for item in active_backends(self.module):
            if item.name == group.owner:
                return item.backend.cost(match_of(group.calls, item, function, self.module))
        return None

    def key(self, function: Function, group: Group) -> Key:
        """What the part is known by: structure, target and library, goal, circumstances."""
        target, more = self.module.targets[group.owner or CORE], ""
        for item in active_backends(self.module):
            if item.name == group.owner:
                more = f" {item.backend.version} {item.backend.library(target)}".rstrip()
        return self._digest(function, group), f"{target}{more}", self.options.optimize, self.at

    def _digest(self, function: Function, group: Group) -> str:
        names: dict[str, int] = {}
        rows: list[object] = [[name for name, _ in group.entries]]
        core = self.module.targets[CORE]
        for index in group.calls:
            call = function.body[index]
            values = [*call.inputs, *call.outputs]
            wires = [None if v is None else names.setdefault(v.name, len(names)) for v in values]
            rows.append([layer_digest(describe(call, self.module), core), wires])
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:24]

    # ---- measuring -----------------------------------------------------------------------------

    def _together(self, function: Function, groups: Sequence[Group]) -> list[PartCost]:
        try:
            return self._measured(function, groups)
        except (ToolMissingError, InternalError):
            raise
        except FirmwrightError as error:
            if len(groups) == 1:
                log.warning("a part fails: %s: %s", _what(function, groups[0]), error)
                return [PartCost("failed", reason=str(error))]
        middle = len(groups) // 2
        first, second = groups[:middle], groups[middle:]
        return self._together(function, first) + self._together(function, second)

    def _measured(self, function: Function, groups: Sequence[Group]) -> list[PartCost]:
        made: dict[str, IRModule] = {}
        log.info("%d parts in one firmware", len(groups))
        options = apart(self.options)
        compiled = compile_model(
            unordered(islands(self.module, function, groups), options),
            options,
            watch=lambda name, module: made.update({name: module}),
        )
        counts = self._counts(compiled)
        part_of = _parts_by_operator(made["lower-select"])
        scratch, constants = _scratch(compiled, part_of), _constants(made["lower-select"], part_of)
        how = "measured" if self.rig else "modelled"
        return [
            PartCost(
                "ok",
                sum(taken for op, taken in counts.items() if part_of.get(op) == number),
                how,
                scratch.get(number, {}),
                constants.get(number, 0),
            )
            for number in range(len(groups))
        ]

    def _counts(self, compiled: Compiled) -> Mapping[int, int]:
        """By operator."""
        if self.rig is None:
            return predicted(compiled)
        sample = generated(compiled.module.io.inputs, _SAMPLES).samples[-1]
        if self.rig.method == EXACT:
            shares = count(compiled, open_with=opener(self.rig), sample=sample).operators
            return {op: share.instructions for op, share in shares.items()}
        image = build_image(compiled, "profile")
        flash_board(image, self.rig.flash)
        with opener(self.rig)(compiled, image=image) as session:
            session.device.measure(sample)
            records = session.device.profile()
        rows = [int(row["index"]) for row in compiled.metadata["operators"]]
        return {op: record.count for op, record in zip(sorted(rows), records, strict=True)}


def apart(options: Options) -> Options:
    """Options for parts that stand beside each other: nothing of the model's own memory."""
    return replace(
        options,
        name="",
        optimize="balanced" if options.optimize == "ram" else options.optimize,
        planner="greedy_by_size",
        io="workspace",
        keep_input=False,
        input_rows=False,
        recompute=False,
        ram_bytes=None,
        flash_bytes=None,
        pins=(),
    )


def unordered(module: IRModule, options: Options) -> IRModule:
    """The module past the search for an order of calls: parts have none, and it would take long."""
    module = configured(module, load_board(options.board, options.board_dirs), options)
    for step in remaining(module, options):
        if step.name == _ORDER:
            break
        module = step(module)
    return module.with_attrs(stage=_ORDER)


def _what(function: Function, group: Group) -> str:
    ops = " ".join(function.body[index].op for index in group.calls)
    return f"{group.owner or CORE}: {ops}"


def _batches(
    rows: Sequence[tuple[Key, Group]], function: Function, budget: int
) -> Iterator[list[tuple[Key, Group]]]:
    batch: list[tuple[Key, Group]] = []
    used = 0
    for key, group in rows:
        size = sum(
            value.type.size_bytes
            for index in group.calls
            for value in (*function.body[index].variables, *function.body[index].outputs)
        )
        if batch and (used + size > budget or len(batch) == PARTS_PER_IMAGE):
            yield batch
            batch, used = [], 0
        batch.append((key, group))
        used += size
    if batch:
        yield batch


# ---- parts side by side --------------------------------------------------------------------------


def islands(module: IRModule, function: Function, groups: Sequence[Group]) -> IRModule:
    """A model of those parts, which share inputs of a type and nothing else, partitioned so."""
    made = _Islands(function)
    given: list[Group] = []
    for number, group in enumerate(groups):
        places = made.add(number, group)
        if group.owner:
            calls = tuple(places[index] for index in group.calls)
            entries = tuple(
                (name, tuple(places[i] for i in covered)) for name, covered in group.entries
            )
            given.append(Group(calls, group.owner, entries))
    main = Function("main", tuple(made.params.values()), tuple(made.body), tuple(made.results))
    others = {k: f for k, f in module.functions.items() if k != function.name and k != "main"}
    alone = replace(module, name="parts", functions={**others, "main": main})
    alone = replace(alone, attrs={"entry": "main", "numerics": module.attrs["numerics"]})
    return divided(alone, Stopwatch(), lambda f, m, a: given if f.name == "main" else ())


class _Islands:
    """Copies of parts, under names of their own."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.params: dict[tuple[TensorType, int], Value] = {}
        self.body: list[Call] = []
        self.results: list[Value] = []

    def add(self, number: int, group: Group) -> dict[int, int]:
        """Adds one; by its calls' indices in the function those here."""
        renamed: dict[str, Value] = {}
        places: dict[int, int] = {}
        for index in group.calls:
            call = self.function.body[index]
            inputs = tuple(v and self._input(v, renamed) for v in call.inputs)
            for value in call.outputs:
                renamed[value.name] = Value(f"part{number}.{len(renamed)}", value.type)
            outputs = tuple(renamed[value.name] for value in call.outputs)
            span = Span("part", number, index, outputs[0].name)
            places[index] = len(self.body)
            self.body.append(replace(call, inputs=inputs, outputs=outputs, span=span, target=""))
        self.results += [renamed[name] for name in self._read_outside(group)]
        return places

    def _input(self, value: Value, renamed: dict[str, Value]) -> Value:
        if value.constant is not None:
            return value
        if value.name not in renamed:
            used = [v for v in renamed.values() if v.type == value.type]
            same = value.type, sum(v in used for v in self.params.values())
            self.params.setdefault(same, Value(f"x{len(self.params)}", value.type))
            renamed[value.name] = self.params[same]
        return renamed[value.name]

    def _read_outside(self, group: Group) -> list[str]:
        outside = {value.name for value in self.function.sinks}
        for index, call in enumerate(self.function.body):
            if index not in group.calls:
                outside |= {value.name for value in call.variables}
        made = [v.name for index in group.calls for v in self.function.body[index].outputs]
        return [name for name in made if name in outside] or made[-1:]


def _parts_by_operator(module: IRModule) -> dict[int, int]:
    main = module.entry
    assert isinstance(main, PrimFunc)
    return {call.op: call.span.subgraph for call in prim_calls(main.body) if call.op >= 0}


def _constants(module: IRModule, part_of: Mapping[int, int]) -> dict[int, int]:
    """Bytes of constants that a part's kernels were made with."""
    main = module.entry
    assert isinstance(main, PrimFunc)
    found: dict[int, int] = {}
    for call in prim_calls(main.body):
        kernel = module.functions[call.callee]
        if call.op in part_of and isinstance(kernel, PrimFunc):
            sizes = [module.constants[name].size_bytes for name in used_constants(kernel.body)]
            found[part_of[call.op]] = found.get(part_of[call.op], 0) + sum(sizes)
    return found


def _scratch(compiled: Compiled, part_of: Mapping[int, int]) -> dict[int, dict[str, int]]:
    """By part and pool the most of workspace and inner tensors that is alive at one time."""
    plan = compiled.metadata["plan"]
    found: dict[int, dict[str, int]] = {}
    for time, op in enumerate(plan["steps"]):
        if op not in part_of:
            continue
        most = found.setdefault(part_of[op], {})
        now: dict[str, int] = {}
        for row in plan["buffers"]:
            lives = any(first <= time < end for first, end in row["live"])
            if lives and row["kind"] in ("scratch", "activation"):
                now[row["pool"]] = now.get(row["pool"], 0) + row["size_bytes"]
        for pool, size in now.items():
            most[pool] = max(size, most.get(pool, 0))
    return found
