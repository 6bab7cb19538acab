"""`firmwright compile`: compile models, which share memory, to C and metadata."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.fit import predicted_figures
from firmwright.cli.model_list import check_several_models, compile_several_from_args
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.compilation_summary import (
    BundleSummary,
    CompilationSummary,
    MemoryTradeoff,
)
from firmwright.flows.board.firmware_mains import SERIAL, with_firmware_main
from firmwright.flows.export.text_arguments import save_with_main
from firmwright.flows.model.compilation import (
    options_for,
    pass_names,
    verify_after_pass,
)
from firmwright.flows.model.model import save_module
from firmwright.flows.predict.fit import fit_of_program
from firmwright.flows.predict.pareto_rows import pareto_rows
from firmwright.flows.predict.remedies import compile_or_advise
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.pipeline import Bundle, Compilation, bundle


def run(args: argparse.Namespace) -> Outcome:
    if args.main and (not args.output or args.firmware != SERIAL):
        raise UsageError(
            "--main needs -o DIR and excludes --firmware.",
            hint="give -o DIR, or omit --main.",
        )
    single_model_options = {
        "--dump-dir": args.dump_dir,
        "--print-after": args.print_after,
        "--print-pipeline": args.print_pipeline,
        "--firmware": args.firmware != SERIAL,
    }
    check_several_models(args, single_model_options)
    if len(args.models) > 1:
        return _run_several(args)
    (args.model,) = args.models
    watch = PassWatcher(args)
    start = time.perf_counter()
    model, options_by_name = arguments.prepare_compilation(args)
    stopwatch = PassTimer()
    compiled = compile_or_advise(
        model, options_by_name, watch=watch, stopwatch=stopwatch
    )
    seconds = time.perf_counter() - start
    watch.finish()
    _save(args, with_firmware_main(compiled, args.firmware))
    options = options_for(model.module, options_by_name)
    data = _base_data(args, compiled, seconds)
    texts = [*watch.printed, format_summary(compiled, seconds, args.output)]
    if args.print_pipeline:
        timings: list[dict[str, object]] = []
        cells: list[tuple[str, str, str]] = []
        for row in stopwatch.rows:
            ms = 1e3 * row.seconds
            timings.append({"pass": row.name, "target": row.target, "ms": round(ms, 3)})
            cells.append((row.name, row.target, f"{ms:.1f}"))
        data["passes"] = pass_names(model.module, options)
        data["timings"] = timings
        texts = [format_table(("pass", "target", "ms"), cells), "", *texts]
    if args.pareto:
        frontier = pareto_rows(model.module, options)
        data["pareto"] = frontier
        texts += ["", format_tradeoffs(frontier)]
    return Outcome(data, "\n".join(texts))


def _base_data(
    args: argparse.Namespace, project: Compilation | Bundle, seconds: float
) -> dict[str, object]:
    folder = {"directory": args.output} if args.output else {}
    return {**project.metadata, "compile_seconds": round(seconds, 3), **folder}


def format_tradeoffs(frontier: Sequence[MemoryTradeoff]) -> str:
    """Format programs' workspace, predicted instructions and streamed segments."""
    least = frontier[0].instructions
    rows: list[Sequence[Cell]] = []
    for item in frontier:
        more = f"{100 * item.instructions / least - 100:+.1f} %"
        parts = [f"{first} to {end - 1}" for first, end in item.segments]
        segments = ", ".join(parts) or "none"
        rows.append((item.workspace_bytes, item.instructions, more, segments))
    head = ("workspace bytes", "predicted instructions", "more", "operators by rows")
    return f"--ram BYTES compiles the fastest that fits:\n\n{format_table(head, rows)}"


def _save(args: argparse.Namespace, project: Compilation | Bundle) -> None:
    if args.main:
        save_with_main(project, args.main, args.output)
    elif args.output:
        project.save(args.output)


def _run_several(args: argparse.Namespace) -> Outcome:
    start = time.perf_counter()
    parts = compile_several_from_args(args, PassWatcher(args))
    firmware = bundle(parts, concurrent=args.concurrent)
    seconds = time.perf_counter() - start
    _save(args, firmware)
    data = _base_data(args, firmware, seconds)
    return Outcome(data, format_bundle_summary(firmware, parts, seconds, args.output))


class PassWatcher:
    """An observer that implements --print-after, --dump-dir and --verify-passes."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.printed: list[str] = []
        self._print_after: list[str] = args.print_after
        self._checks = args.verify_passes
        self._seen: list[str] = []
        self._folder = Path(args.dump_dir) if args.dump_dir else None

    def __call__(self, name: str, module: IRModule) -> None:
        if self._checks:
            verify_after_pass(name, module)
        if name in self._print_after:
            self.printed.append(print_module(module, elide_constants=True))
        if self._folder is not None:
            save_module(module, self._dump_file(name))
        self._seen.append(name)

    def _dump_file(self, name: str) -> Path:
        """Return the next dump's path, numbered in the order of the passes."""
        assert self._folder is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"the folder cannot be created: {error.strerror}."
            hint = "give another --dump-dir."
            raise UsageError(what, where=str(self._folder), hint=hint) from error
        return self._folder / f"{len(self._seen):02d}-{name}.fwir"

    def finish(self) -> None:
        """Raise UsageError if a pass of --print-after did not run."""
        missing = [name for name in self._print_after if name not in self._seen]
        if missing:
            what = f"--print-after {missing[0]}: no such pass ran."
            raise UsageError(what, hint=f"use one of {', '.join(self._seen)}.")


def _pools_in_use(
    summary: CompilationSummary | BundleSummary, access: str = "rw"
) -> str:
    used: list[str] = []
    for name, pool in summary.pools.items():
        if pool.access == access and pool.bytes:
            used.append(f"{name} {pool.bytes:,}")
    return ", ".join(used)


def format_bundle_summary(
    bundle: Bundle, parts: Sequence[Compilation], seconds: float, output: str | None
) -> str:
    """Summarize several models in one firmware; `parts` are the single models."""
    summary = bundle.summary
    alone: list[str] = []
    for part in parts:
        alone.append(f"{part.module.name} {part.summary.workspace_bytes:,}")
    target = next(iter(summary.target.values()))
    sharing = "separate for each" if summary.concurrent else "shared"
    workspace = f"{summary.workspace_bytes:,} bytes, {sharing}"
    rows: list[tuple[str, Cell]] = [
        ("models", ", ".join(summary.run_order)),
        ("board", f"{bundle.board.name}, target {target}"),
        ("workspace", f"{workspace} ({_pools_in_use(summary)})"),
        ("alone", f"{', '.join(alone)} bytes"),
        ("constants", f"{summary.constants_bytes:,} bytes"),
        *_common_rows(seconds, output),
    ]
    return format_pairs(rows)


def format_summary(compiled: Compilation, seconds: float, output: str | None) -> str:
    summary = compiled.summary
    targets = ", ".join(map(str, compiled.module.targets.values()))
    pools, const_pools = _pools_in_use(summary), _pools_in_use(summary, "ro")
    gap = summary.optimality_gap_bytes
    distance = f"the plan is {gap:,} above" if gap else "met"
    constants = f"{summary.constants_bytes:,} bytes"
    if const_pools:
        constants += f" ({const_pools})"
    buffers = summary.plan.buffers if summary.plan else ()
    copied = sum(buffer.size_bytes for buffer in buffers if buffer.kind == "const")
    if copied:
        constants += f", of which {compiled.c_prefix}_init copies {copied:,} to RAM"
    if summary.compressed_bytes:
        constants += f", {summary.compressed_bytes:,} saved by coding"
    operators = str(summary.operator_count)
    views = summary.operator_count - len(summary.operators)
    if views:
        operators += f", {views} of them without code"
    rows: list[tuple[str, Cell]] = [
        ("model", summary.model),
        ("board", f"{compiled.board.name}, target {targets}"),
        ("workspace", f"{summary.workspace_bytes:,} bytes ({pools})"),
        ("lower bound", f"{summary.lower_bound_bytes:,} bytes, {distance}"),
        ("constants", constants),
        ("operators", operators),
    ]
    for item in summary.rejections:
        rows.append(("on the core", summary.describe_rejection(item)))
    rows += predicted_figures(fit_of_program(compiled))
    return format_pairs([*rows, *_common_rows(seconds, output)])


def _common_rows(seconds: float, output: str | None) -> list[tuple[str, Cell]]:
    written = "not written; add -o DIR"
    if output:
        written = f"{output} (build it with firmwright build {output})"
    return [("compiled in", f"{seconds:.2f} s"), ("project", written)]
