"""Collage: the partition of a model that costs least, found by measuring its parts.

In: a model, options with backends among the targets, how to measure, a log. Out: the `Partition`
that was found, and the model partitioned so. Parts are priced one by one and the least sum is
searched. A sum is not a program (neighbours share code, fuse, overlap in memory), so whole programs
are measured too: the best sum, the order of preference (`eager`), the core alone (`none`). The best
of them is taken: where they can be run, Collage is never above eager. With `--optimize ram` the
least workspace counts, then time. A program that does not fit makes way for one with less memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import (
    DeviceError,
    DoesNotFitError,
    ToolFailedError,
    UsageError,
)
from firmwright.boards import load_board
from firmwright.flows.counting import SharedKernelError, count
from firmwright.flows.images import build_image
from firmwright.flows.inputs import generated
from firmwright.flows.model import Model
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.tuning import Circumstances
from firmwright.partitioning.assign import divided, prepared
from firmwright.partitioning.choosing import (
    CORE,
    active_backends,
    core_of,
    is_backend,
    named,
)
from firmwright.partitioning.collage import (
    Candidate,
    PartCost,
    Program,
    known_only,
    search,
)
from firmwright.partitioning.matching import Active, Choose, eager, possible, with_rest
from firmwright.partitioning.owners import owner
from firmwright.partitioning.parts import (
    Part,
    Partition,
    Total,
    check_tensors,
    chosen,
    parts_of_program,
)
from firmwright.partitioning.phases import Stopwatch
from firmwright.partitioning.regions import Group
from firmwright.pipeline import Compiled, Options, compile_model, configured
from firmwright.targets.registry import parse_targets
from firmwright.tune.measure import EXACT, Rig, flash_board, opener
from firmwright.tune.part_costs import PartCosts
from firmwright.tune.part_log import PartLog, PartRecord

log = logging.getLogger(__name__)
_TRIES = 4
"""Programs of the search that are compiled until one fits."""


@dataclass(frozen=True, slots=True)
class Found:
    """A search's result, and the model as it says."""

    partition: Partition
    model: Model


def collage(
    model: Model, options: Options, rig: Rig | None, at: Circumstances, book: PartLog
) -> Found:
    """Search; UsageError where no backend is among the targets, or a module is partitioned."""
    module = _prepared(model, options)
    return _Collage(model, module, options, rig, at, book).run()


@dataclass
class _Collage:
    model: Model
    module: IRModule
    options: Options
    rig: Rig | None
    at: Circumstances
    book: PartLog

    def run(self) -> Found:
        made = {"eager": self._divided(eager), "none": self._divided(_none)}
        totals = {how: self._total(module) for how, module in made.items()}
        searched = [self._searched(function) for function in self._functions()]
        parts: tuple[Part, ...] = ()
        for tried in range(_TRIES):
            picked = {
                function.name: programs[min(tried, len(programs) - 1)]
                for function, _, programs in searched
            }
            made["collage"] = self._divided(_by_function(picked))
            totals["collage"] = self._total(made["collage"])
            parts = self._parts(searched, picked)
            if not totals["collage"].reason.startswith(_NO_ROOM):
                break
        given = any(_is_given(c.target) for f in self._functions() for c in f.body)
        best = min(
            ("collage", "eager", *(() if given else ("none",))),
            key=lambda how: self._key(totals[how]),
        )
        if best != "collage":
            parts = self._parts(
                searched, self._programs(searched, eager if best == "eager" else _none)
            )
        found = Partition(
            model=self.model.name,
            board=self.options.board,
            targets=", ".join(map(str, self.module.targets.values())),
            goal=self.options.optimize,
            method=self.at.method,
            unit=self._unit(),
            chosen=best,
            parts=parts,
            totals=totals,
        )
        return Found(found, portable(self.model, made[best], self.options))

    def _functions(self) -> list[Function]:
        return [
            function
            for function in self.module.functions.values()
            if isinstance(function, Function) and not owner(function) and function.body
        ]

    def _divided(self, choose: Choose) -> IRModule:
        return divided(self.module, Stopwatch(), choose)

    # ---- parts ---------------------------------------------------------------------------------

    def _searched(self, function: Function) -> _Searched:
        """A function's candidates, and programs of them."""
        active = active_backends(self.module)
        groups = possible(function, self.module, active)
        singles = [(i,) for i, call in enumerate(function.body) if not _is_given(call.target)]
        core = {calls: Group(calls) for calls in (*singles, *(g.calls for g in groups))}
        given = {i for i, call in enumerate(function.body) if _is_given(call.target)}
        groups = [*groups, *(g for g in core.values() if not given & set(g.calls))]
        prices = PartCosts(self.module, self.options, self.rig, self.at, self.book)
        costs = prices.of(function, groups)
        candidates = [Candidate(g, cost) for g, cost in zip(groups, costs, strict=True)]
        first = with_rest(function, eager(function, self.module, active))
        programs = search(function, known_only(candidates, first), self._transfer)
        if self.options.optimize == "ram":
            programs = tuple(sorted(programs, key=lambda p: (p.peak_bytes, p.count)))
        return function, candidates, programs

    def _transfer(self, source: str, to: str, size_bytes: int) -> int:
        backends = {item.name: item.backend for item in active_backends(self.module)}
        ends = (backends[name] for name in (source, to) if name in backends)
        return sum(backend.transfer(size_bytes) for backend in ends)

    def _programs(self, searched: Sequence[_Searched], choose: Choose) -> dict[str, Program]:
        """What that choice makes of each function, with what is known of its parts."""
        found: dict[str, Program] = {}
        active = active_backends(self.module)
        for function, candidates, _ in searched:
            costs = {(c.group.owner, c.group.calls): c.cost for c in candidates}
            groups = with_rest(function, choose(function, self.module, active))
            parts = (
                Candidate(g, costs.get((g.owner, g.calls), PartCost("unknown"))) for g in groups
            )
            ordered = tuple(sorted(parts, key=lambda part: part.group.calls))
            found[function.name] = Program(ordered, 0, 0)
        return found

    def _parts(
        self, searched: Sequence[_Searched], programs: Mapping[str, Program]
    ) -> tuple[Part, ...]:
        return tuple(
            part
            for function, candidates, _ in searched
            for part in parts_of_program(function, programs[function.name].parts, candidates)
        )

    # ---- whole programs ------------------------------------------------------------------------

    def _key(self, total: Total) -> tuple[float, ...]:
        """What is to be least."""
        if total.count is None:
            return (float("inf"),)
        if self.options.optimize == "ram":
            return total.workspace_bytes, total.count
        return (total.count,)

    def _total(self, module: IRModule) -> Total:
        """What the program takes as a whole."""
        try:
            compiled = compile_model(module, self.options, source=self.model.source)
        except DoesNotFitError as error:
            return Total(None, reason=f"{_NO_ROOM} {error}")
        pools = {name: row["bytes"] for name, row in compiled.metadata["pools"].items()}
        key = compiled.model_id, "", self.options.optimize, self.at
        known = self.book.find(key)
        if known is None:
            known = self._run(compiled)
            self.book.append(PartRecord(key, f"{self.model.name} as a whole", known))
        if known.status != "ok":
            return Total(None, pools, reason=known.reason)
        return Total(known.count, pools, known.constants_bytes)

    def _run(self, compiled: Compiled) -> PartCost:
        """The whole program as a part; its bytes are those of the image."""
        if self.rig is None:
            return PartCost("unknown", reason="nothing can be measured there")
        try:
            image = build_image(compiled)
            taken = self._measured(compiled)
        except (ToolFailedError, DoesNotFitError, DeviceError) as error:
            return PartCost("failed", reason=str(error))
        return PartCost("ok", taken, constants_bytes=image.sizes.flash_bytes)

    def _measured(self, compiled: Compiled) -> int:
        assert self.rig is not None
        if self.rig.method == EXACT:
            try:
                return count(compiled, open_with=opener(self.rig)).until_over
            except SharedKernelError:
                log.info("%s: counted by the timer", compiled.module.name)
        image = build_image(compiled)
        flash_board(image, self.rig.flash)
        (sample,) = generated(compiled.module.io.inputs, 1).samples
        with opener(self.rig)(compiled, image=image) as session:
            taken: int = session.device.measure(sample)
        return taken

    def _unit(self) -> str:
        if self.rig is None:
            return "predicted instructions"
        return "cycles" if self.rig.port else "instructions"


def applied(model: Model, options: Options, parts: Sequence[Part], where: str) -> Model:
    """`model` partitioned as a result says, which was saved and perhaps edited."""
    module = _prepared(model, options)
    check_tensors(parts, module, where)
    return portable(model, divided(module, Stopwatch(), chosen(parts, where)), options)


def portable(model: Model, divided_module: IRModule, options: Options) -> Model:
    """The partitioned model without what is of one board: as `flows.model.partition` makes it."""
    asked = parse_targets(options.target)
    core = core_of(asked)
    table = {**({CORE: core} if core else {}), **named(filter(is_backend, asked))}
    attrs = {**model.module.attrs, "numerics": options.numerics, "partitioned": True}
    module = replace(
        divided_module,
        targets=table,
        pools=model.module.pools,
        io=model.module.io,
        attrs=attrs,
    )
    return replace(model, module=module)


def _prepared(model: Model, options: Options) -> IRModule:
    """The module as its parts are chosen in; UsageError where they have been, or cannot be."""
    if "stage" in model.module.attrs or model.module.attrs.get("partitioned"):
        raise UsageError(
            "the module's operators have been given to targets already.",
            where=model.file or model.name,
            hint="the model file itself.",
        )
    board = load_board(options.board, options.board_dirs)
    module = prepared(configured(model.module, board, options), Stopwatch())
    if not active_backends(module):
        raise UsageError(
            "there is nothing to choose: no backend is among the targets.",
            hint="--target 'npu1, ...'; firmwright backends lists them.",
        )
    return module


_NO_ROOM = "it does not fit:"
_Searched = tuple[Function, list[Candidate], tuple[Program, ...]]


def _none(function: Function, module: IRModule, active: Sequence[Active]) -> Sequence[Group]:
    """The core has all."""
    return ()


def _is_given(target: str) -> bool:
    return target != ""


def _by_function(programs: Mapping[str, Program]) -> Choose:
    def choose(function: Function, module: IRModule, active: Sequence[Active]) -> list[Group]:
        return programs[function.name].groups if function.name in programs else []

    return choose
