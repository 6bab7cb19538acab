"""Everything known about a build, gathered for one page: compiled, built, run, measured.

In: a `Compilation`. Out: a `BuildReport` (report/model.py) with its findings. Figures are those of
`compile`, `build` and `profile`; what is added is whose the flash is, and what less memory would
cost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from firmwright.artifacts import Compiler, Image
from firmwright.base.errors import UsageError
from firmwright.base.json_input import parse_json
from firmwright.build.compiler_selection import choose_compiler
from firmwright.flows.firmware_images import build_image
from firmwright.flows.model_session import ModelSession, c_prefix, open_session
from firmwright.flows.profiling import OperatorCost, Profile, profile
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function
from firmwright.ir.tir.traversal import prim_calls
from firmwright.partitioning.collage import RegionCost
from firmwright.partitioning.partition_result import PartitionResult
from firmwright.pipeline import Compilation, pareto_front
from firmwright.report.findings import find_issues
from firmwright.report.html_page import EMBEDDED_JSON
from firmwright.report.memory_map import planned_buffers
from firmwright.report.model import (
    BuildReport,
    ImageSection,
    MemoryRegionUsage,
    OperatorReport,
    PartitionDecision,
    PartitionSearch,
    PoolUsage,
    ProgramOption,
    StackReport,
    TargetOption,
    WorkspaceTradeoff,
)

_OWNER = re.compile(r"^.+?_(\d+)(?:_rows?\d*)?$")
"""Kernels and constants are called after the operator that they were made for."""
_FLOAT_CALLS = frozenset({"__aeabi_fmul", "__aeabi_fadd", "__mulsf3", "__addsf3"})
"""What compilers call where a core computes no floats."""


def build_report(
    compiled: Compilation,
    *,
    open_with: Callable[..., ModelSession] = open_session,
    count_instructions: bool = False,
    compiler: Compiler | None = None,
    tradeoffs: bool = True,
    partition: PartitionResult | None = None,
) -> BuildReport:
    """Build and measure `compiled`; `exact` as for `profile`, `tradeoffs` looks for less RAM.

    `partition` is the search that said who runs what, where there was one.
    UsageError for a toolchain that does not tell what functions take of the stack.
    """
    if choose_compiler(compiler) == "zig":
        raise UsageError(
            "zig does not tell what functions take of the stack, which a report states.",
            where=compiled.board.name,
            hint="--toolchain gcc or clang; profile works with zig.",
        )
    image = build_image(compiled, compiler=compiler)
    measured = profile(
        compiled, open_with=open_with, count_instructions=count_instructions, compiler=compiler
    )
    found = _report(compiled, image, measured)
    if tradeoffs:
        found = replace(found, tradeoffs=_tradeoffs(compiled))
    search = None if partition is None else _search(partition)
    return replace(found, findings=find_issues(found), search=search)


def read_report(path: str | Path) -> Mapping[str, Any]:
    """The facts of an earlier report: its page, or what `report --json` printed."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the earlier report cannot be read: {error}.", where=str(path)) from error
    found = EMBEDDED_JSON.search(text)
    try:
        facts = parse_json(found[1] if found else text)
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not {"operators", "total", "workspace_bytes"} <= set(facts):
        raise UsageError(
            "this is no report.",
            where=str(path),
            hint="a page that report -o wrote, or its --json.",
        )
    return facts


def _report(compiled: Compilation, image: Image, measured: Profile) -> BuildReport:
    known, board = compiled.metadata, compiled.board
    return BuildReport(
        model=str(known["model"]),
        board=board.name,
        core=board.core,
        target=", ".join(known["target"].values()),
        numerics=str(known["numerics"]),
        optimize=compiled.options.optimize,
        compiler=measured.flags,
        tool_version=str(known["tool_version"]),
        model_id=compiled.model_id,
        unit=measured.unit,
        total=measured.total,
        resolution=measured.resolution,
        workspace_bytes=int(known["workspace_bytes"]),
        lower_bound_bytes=int(known["lower_bound_bytes"]),
        constants_bytes=int(known["constants_bytes"]),
        flash_bytes=image.sizes.flash_bytes,
        ram_bytes=image.sizes.ram_bytes,
        model_flash_bytes=image.model_flash_bytes,
        model_ram_bytes=image.model_ram_bytes,
        stack=StackReport(
            model_bytes=image.stack.size_bytes,
            firmware_bytes=image.firmware_stack.size_bytes,
            seen_bytes=measured.stack_bytes,
            reserve_bytes=measured.stack_reserve_bytes,
            path=image.firmware_stack.path,
        ),
        pools=tuple(
            PoolUsage(name, int(pool["bytes"]), pool["limit_bytes"])
            for name, pool in known["pools"].items()
            if pool["access"] == "rw" and pool["bytes"]
        ),
        buffers=planned_buffers(known),
        operator_by_time=tuple(known["plan"]["operator_by_time"]),
        operators=_operators(compiled, image, measured.operators),
        sections=tuple(
            ImageSection(s.name, s.kind, s.size_bytes) for s in image.sizes.sections if s.size_bytes
        ),
        regions=tuple(
            MemoryRegionUsage(r.name, r.used_bytes, r.size_bytes) for r in image.sizes.regions
        ),
        library_floats=any(symbol.name in _FLOAT_CALLS for symbol in image.sizes.symbols),
    )


def _operators(
    compiled: Compilation, image: Image, costs: tuple[OperatorCost, ...]
) -> tuple[OperatorReport, ...]:
    rows = sorted(compiled.metadata["operators"], key=lambda row: int(row["index"]))
    code, constants = _code(compiled, image, rows), _constants(compiled)
    return tuple(
        OperatorReport(
            index=int(row["index"]),
            name=cost.name,
            kind=cost.kind,
            span=str(row["span"]),
            schedule=cost.schedule,
            macs=cost.macs,
            count=cost.count,
            predicted=cost.predicted,
            modelled_cycles=cost.modelled_cycles,
            code_bytes=code[int(row["index"])],
            constant_bytes=constants[int(row["index"])],
        )
        for row, cost in zip(rows, costs, strict=True)
    )


def _code(compiled: Compilation, image: Image, rows: Sequence[Mapping[str, Any]]) -> Counter[int]:
    """Bytes of code by operator; what several call is shared out among them."""
    prefix = f"{c_prefix(compiled)}_"
    users: dict[str, list[int]] = {}
    for row in rows:
        users.setdefault(str(row["kernel"]), []).append(int(row["index"]))
    bytes_by: Counter[int] = Counter()
    for symbol in image.sizes.symbols:
        if symbol.kind == "text" and symbol.name.startswith(prefix):
            kernel = symbol.name.removeprefix(prefix).split(".")[0]  # gcc splits: NAME.part.0
            bytes_by += _shared_out(symbol.size_bytes, kernel, users)
    return bytes_by


def _constants(compiled: Compilation) -> Counter[int]:
    """Bytes of constants by the operators that they were made for."""
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)  # compiled to the end
    users: dict[str, list[int]] = {}
    for call in prim_calls(main.body):
        if call.op >= 0 and call.phase != "wait":
            users.setdefault(call.callee, []).append(call.op)
    bytes_by: Counter[int] = Counter()
    for row in compiled.metadata["constants"]:
        kernel = str(row["name"]).rpartition(".")[0]
        bytes_by += _shared_out(int(row["size_bytes"]), kernel, users)
    return bytes_by


def _shared_out(size_bytes: int, kernel: str, users: Mapping[str, Sequence[int]]) -> Counter[int]:
    """`size_bytes` by the operators that call `kernel`, or that it is named after."""
    owner = _OWNER.match(kernel)
    sharing = users.get(kernel) or ([int(owner[1])] if owner else [])
    shares = (divmod(size_bytes, len(sharing)) for _ in sharing)
    return Counter(
        {
            index: share + (place < rest)
            for place, (index, (share, rest)) in enumerate(zip(sharing, shares, strict=True))
        }
    )


def _search(found: PartitionResult) -> PartitionSearch:
    """What a search found, in the words of a report."""
    return PartitionSearch(
        found.unit,
        found.method,
        tuple(
            PartitionDecision(
                _choice(" ".join(part.ops), part.target, part.cost),
                tuple(_choice("", other.target, other.cost) for other in part.alternatives),
            )
            for part in found.parts
        ),
        tuple(
            ProgramOption(
                how,
                total.count,
                total.workspace_bytes,
                total.flash_bytes,
                how == found.chosen,
                total.reason,
            )
            for how, total in found.totals.items()
        ),
    )


def _choice(operators: str, target: str, cost: RegionCost) -> TargetOption:
    notes = {"ok": "" if cost.how == "measured" else f"({cost.how})", "failed": cost.reason}
    note = notes.get(cost.status, cost.status)
    return TargetOption(operators, target, cost.count if cost.status == "ok" else None, note)


def _tradeoffs(compiled: Compilation) -> tuple[WorkspaceTradeoff, ...]:
    """What less RAM would cost; nothing is known of a module that is lowered already."""
    if not isinstance(compiled.imported.entry, Function) or "stage" in compiled.imported.attrs:
        return ()
    found = pareto_front(compiled.imported, compiled.options)
    return tuple(
        WorkspaceTradeoff(t.workspace_bytes, t.instructions, tuple(t.segments)) for t in found
    )
