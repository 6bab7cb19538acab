"""Builds and measures a compilation, and collects the results in a report."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import JsonObject, parse_json
from firmwright.boards import Compiler
from firmwright.build.compiler_selection import choose_compiler
from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.measure.core_timeline import has_timeline
from firmwright.flows.measure.flash_attribution import (
    code_bytes_by_operator,
    constant_bytes_by_operator,
)
from firmwright.flows.measure.instruction_counts import InstructionCounts
from firmwright.flows.measure.network_graph import build_network
from firmwright.flows.measure.profiling import OperatorCost, Profile, profile
from firmwright.flows.predict.pareto_rows import pareto_rows
from firmwright.flows.predict.time_prediction import predict_time
from firmwright.ir.graph.nodes import Function
from firmwright.partitioning.partition_result import PartitionResult
from firmwright.pipeline import Compilation
from firmwright.report import model
from firmwright.report.findings import find_issues
from firmwright.report.html_page import EMBEDDED_JSON
from firmwright.targets.run_time import RunTime

_FLOAT_CALLS = frozenset({"__aeabi_fmul", "__aeabi_fadd", "__mulsf3", "__addsf3"})
"""Library functions that compilers call on cores without a floating-point unit."""


def build_report(
    compiled: Compilation,
    *,
    open_with: SessionOpener = open_session,
    count_instructions: bool = False,
    compiler: Compiler | None = None,
    tradeoffs: bool = True,
    partition: PartitionResult | None = None,
) -> model.BuildReport:
    """Build and measure `compiled`.

    `count_instructions` means the same as in `profile`. `tradeoffs` adds a search for
    programs that need less RAM. `partition` is the result of the partition search, if
    there was one. Raise UsageError for a toolchain that does not report stack use.
    """
    if choose_compiler(compiler, default=compiled.board.compiler) == "zig":
        what = "zig does not report the stack use of functions, which a report needs."
        hint = "use --toolchain gcc or clang; profile works with zig."
        raise UsageError(what, where=compiled.board.name, hint=hint)
    image = build_image(compiled, compiler=compiler)
    measured = profile(
        compiled,
        open_with=open_with,
        count_instructions=count_instructions,
        compiler=compiler,
    )
    report = replace(
        _report(compiled, image, measured),
        tradeoffs=_tradeoffs(compiled) if tradeoffs else (),
        search=None if partition is None else partition.as_json(),
        network=build_network(compiled),
    )
    return replace(report, findings=find_issues(report))


def read_report(path: str | Path) -> JsonObject:
    """Read the JSON of an earlier report from its page or from `report --json`."""
    hint = "give a page that report -o wrote, or the output of report --json."
    try:
        text = read_input_text(path)
    except (OSError, UnicodeDecodeError) as error:
        what = f"the baseline cannot be read: {error}."
        raise UsageError(what, where=str(path), hint=hint) from error
    embedded = EMBEDDED_JSON.search(text)
    try:
        facts = parse_json(embedded[1] if embedded else text)
    except ValueError:
        facts = None
    required = {"operators", "total", "workspace_bytes"}
    if not isinstance(facts, Mapping) or not required <= set(facts):
        raise UsageError("this is not a report.", where=str(path), hint=hint)
    return facts


def _report(
    compiled: Compilation, image: Image, measured: Profile
) -> model.BuildReport:
    summary, board = compiled.summary, compiled.board
    assert summary.plan is not None  # compiled to the end
    writable: set[str] = set()
    for name, pool in summary.pools.items():
        if pool.access == "rw" and pool.bytes:
            writable.add(name)
    exact, axis = measured.exact, compiled.module.settings.axis
    sections = [item for item in image.sizes.sections if item.size_bytes]
    symbols = {symbol.name for symbol in image.sizes.symbols}
    stack = model.StackReport(
        model_bytes=image.stack.size_bytes,
        firmware_bytes=image.firmware_stack.size_bytes,
        seen_bytes=measured.stack_bytes,
        reserve_bytes=measured.stack_reserve_bytes,
        path=image.firmware_stack.path,
    )
    return model.BuildReport(
        model=summary.model,
        board=board.name,
        core=board.core,
        target=", ".join(summary.target.values()),
        numerics=summary.numerics,
        optimize=compiled.options.optimize,
        compiler=measured.flags,
        tool_version=summary.tool_version,
        model_id=compiled.model_id,
        unit=measured.unit,
        total=measured.total,
        resolution=measured.resolution,
        workspace_bytes=summary.workspace_bytes,
        lower_bound_bytes=summary.lower_bound_bytes,
        constants_bytes=summary.constants_bytes,
        flash_bytes=image.sizes.flash_bytes,
        ram_bytes=image.sizes.ram_bytes,
        model_flash_bytes=image.model_flash_bytes,
        model_ram_bytes=image.model_ram_bytes,
        stack=stack,
        pools=tuple(pool for pool in measured.pools if pool.name in writable),
        buffers=summary.plan.buffers,
        operator_by_time=summary.plan.operator_by_time,
        operators=_operators(compiled, image, measured.operators),
        sections=tuple(sections),
        regions=image.sizes.regions,
        parallel=None if exact is None else exact.parallel,
        estimates=measured.estimates,
        modeled_cycles="" if exact is None else exact.describe_cycles(),
        axis="" if axis is None else str(axis),
        time=_time(compiled, exact),
        clock_hz=measured.clock_hz,
        rejections=summary.rejections,
        library_floats=not symbols.isdisjoint(_FLOAT_CALLS),
    )


def _time(compiled: Compilation, exact: InstructionCounts | None) -> RunTime | None:
    """Return the modeled time of a run on the core alone, None with other devices."""
    if has_timeline(compiled):
        return None
    return predict_time(compiled) if exact is None else exact.time


def _operators(
    compiled: Compilation, image: Image, costs: tuple[OperatorCost, ...]
) -> tuple[model.OperatorReport, ...]:
    code_bytes = code_bytes_by_operator(compiled, image)
    constant_bytes = constant_bytes_by_operator(compiled)
    reports: list[model.OperatorReport] = []
    for operator, cost in zip(compiled.summary.operators, costs, strict=True):
        report = model.OperatorReport(
            index=operator.index,
            name=operator.name,
            kind=operator.kind,
            span=operator.span,
            schedule=operator.schedule,
            macs=operator.macs,
            count=cost.count,
            predicted=cost.predicted,
            modeled_cycles=cost.modeled_cycles,
            code_bytes=code_bytes[operator.index],
            constant_bytes=constant_bytes[operator.index],
        )
        reports.append(report)
    return tuple(reports)


def _tradeoffs(compiled: Compilation) -> tuple[MemoryTradeoff, ...]:
    """Return programs that need less RAM; () for a partly compiled module."""
    imported = compiled.imported
    if not isinstance(imported.entry, Function) or imported.is_started:
        return ()
    return pareto_rows(imported, compiled.options)
