"""From a module to sources and facts, alone or several in one firmware.

In: a module and options. Out: `Compiled`, `Bundle`, and what less memory would cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firmwright.artifacts import SourceTree
from firmwright.base.deep_trees import allow_deep_trees
from firmwright.base.errors import UsageError
from firmwright.base.version import VERSION
from firmwright.boards import Board, load_board
from firmwright.build import flags as build_flags
from firmwright.build.project import project_files
from firmwright.codegen.bundle import check_bundle, emit_bundle
from firmwright.codegen.house_rules import common_rules, rules_of
from firmwright.codegen.module import EmitOptions, emit, model_id
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.package.folder import with_file_list, write_folder
from firmwright.package.metadata import bundle_metadata, metadata
from firmwright.package.mlperf import Task, benchmark_project
from firmwright.package.recipe import recipe
from firmwright.partitioning.choosing import asked_words
from firmwright.partitioning.libraries import intrinsics_of, with_libraries
from firmwright.partitioning.phases import Stopwatch
from firmwright.pipeline.configuring import configured
from firmwright.pipeline.options import Options
from firmwright.pipeline.passes import passes_for, remaining
from firmwright.pipeline.selecting import asked, lowering_of
from firmwright.report.notebook import compiled_html
from firmwright.schedules.registry import INTRINSICS
from firmwright.select.candidates import Tradeoff
from firmwright.select.select import programs
from firmwright.usmp.together import check_apart, plan_together

Watch = Callable[[str, IRModule], None]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compilation: the planned module, its sources, what is known about them, for which board.

    `imported` is the module as it was before the first pass of this compilation, with target, pools
    and options written into it. `source` holds the bytes of the model file where there is one: what
    the oracle runs. `task` is that of a benchmark's firmware, which has its harness, not our link.
    """

    module: IRModule
    imported: IRModule
    board: Board
    tree: SourceTree
    metadata: Mapping[str, Any]
    options: Options
    source: bytes | None = None
    task: Task | None = None

    @property
    def model_id(self) -> str:
        """32 hex digits: the firmware says the same ones of itself."""
        return model_id(self.tree)

    def project(self) -> SourceTree:
        """Every file of a project that builds alone with `scons`."""
        files = project_files(self.board, c_standard=self.options.c_standard)
        project = self.tree.merged(files)
        if self.task is None:
            return project
        return benchmark_project(project, self.module.io, self.board, self.task)

    def save(self, directory: str | Path) -> None:
        """Write that project; UsageError if `directory` holds anything that is not ours."""
        write_folder(self.project(), Path(directory))

    def _repr_html_(self) -> str:
        return compiled_html(self.metadata)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Several compilations for one board as one firmware; constants they share are there once."""

    parts: tuple[Compiled, ...]
    tree: SourceTree
    metadata: Mapping[str, Any]

    @property
    def board(self) -> Board:
        return self.parts[0].board

    @property
    def model_id(self) -> str:
        """32 hex digits: the firmware says the same ones of itself."""
        return model_id(self.tree)

    def project(self) -> SourceTree:
        """Every file of a project that builds alone with `scons`."""
        standard = self.parts[0].options.c_standard
        return self.tree.merged(project_files(self.board, c_standard=standard))

    def save(self, directory: str | Path) -> None:
        """Write that project; UsageError if `directory` holds anything that is not ours."""
        write_folder(self.project(), Path(directory))


def compile_model(
    model: IRModule,
    options: Options,
    *,
    source: bytes | None = None,
    watch: Watch | None = None,
    stopwatch: Stopwatch | None = None,
) -> Compiled:
    """Compile `model` for a board; `watch` sees the module after every pass."""
    allow_deep_trees()
    board = load_board(options.board, options.board_dirs)
    imported = module = configured(model, board, options)
    for step in remaining(module, options, stopwatch):
        module = step(module).with_attrs(stage=step.name)
        if watch is not None:
            watch(step.name, module)
    return _emitted(module, imported, board, options, source)


def _emitted(
    module: IRModule, imported: IRModule, board: Board, options: Options, source: bytes | None
) -> Compiled:
    """The planned `module`, checked, as C and facts."""
    intrinsics = intrinsics_of(module, INTRINSICS)
    verify_module(module, op_table(), intrinsics)
    compiler = build_flags.tool(board, "gcc"), build_flags.tuned_flags(board)
    with_files = with_libraries(module)
    tree = emit(with_files, intrinsics, _emit_options(board, options))
    facts = metadata(
        module,
        board.name,
        model_id=model_id(tree),
        tool_version=VERSION,
        compiler={"tool": compiler[0], "flags": list(compiler[1])},
        recipe=recipe(replace(options, target=asked_words(module.targets, board))),
    )
    text = json.dumps(with_file_list(facts, tree), indent=2, sort_keys=True) + "\n"
    tree = tree.merged(SourceTree({"metadata.json": text}))
    return Compiled(module, imported, board, tree, facts, options, source)


def _emit_options(board: Board, asked: Options) -> EmitOptions:
    """Sources that say which compiler and flags their kernels suit, by the rules of the house."""
    return EmitOptions(
        tool_version=VERSION,
        inline_asm=asked.inline_asm,
        steps=asked.steps,
        tvm_api=asked.c_api == "tvm",
        notes=build_flags.tuned_words(board),
        rules=rules_of(asked),
    )


def bundle(parts: Sequence[Compiled], *, concurrent: bool = False) -> Bundle:
    """One firmware that holds every model of `parts`, whose inputs are all written before its run.

    The models run one after another and share their pools: the largest one's memory, and what must
    be kept of the others meanwhile. With `concurrent` each has memory of its own. On the link the
    tensors are called MODEL/TENSOR. UsageError if the parts cannot be in one, DoesNotFitError.
    """
    boards = sorted({part.board.name for part in parts})
    if len(boards) > 1:
        raise UsageError(f"the models are compiled for several boards: {', '.join(boards)}.")
    check_bundle([part.module for part in parts])
    order, shared = tuple(range(len(parts))), None
    if concurrent:
        check_apart([part.module for part in parts])
    else:
        found = plan_together([part.module for part in parts], parts[0].options.planner)
        order, shared = found.order, found.plan
        parts = [_moved(part, moved) for part, moved in zip(parts, found.modules, strict=True)]
    inline_asm = all(part.options.inline_asm for part in parts)
    steps = any(part.options.steps for part in parts)
    common_rules([part.options for part in parts])
    asked = replace(parts[0].options, inline_asm=inline_asm, steps=steps)
    intrinsics: IntrinsicTable = INTRINSICS
    for part in parts:
        intrinsics = intrinsics_of(part.module, intrinsics)
    tree = emit_bundle(
        [with_libraries(part.module) for part in parts],
        intrinsics,
        _emit_options(parts[0].board, asked),
        order=order,
        shared_bytes=shared.pool_bytes if shared else None,
    )
    facts = bundle_metadata(
        [part.metadata for part in parts],
        [parts[index].module.name for index in order],
        shared,
        model_id=model_id(tree),
    )
    text = json.dumps(with_file_list(facts, tree), indent=2, sort_keys=True) + "\n"
    return Bundle(tuple(parts), tree.merged(SourceTree({"metadata.json": text})), facts)


def _moved(part: Compiled, module: IRModule) -> Compiled:
    """`part` with its buffers where `module` has them."""
    return _emitted(module, part.imported, part.board, part.options, part.source)


def pareto(model: IRModule, options: Options) -> tuple[Tradeoff, ...]:
    """What a compilation of `model` could take: fewer bytes, more instructions, row after row.

    Each is what `Options(ram_bytes=its bytes)` compiles to, or better; none beats another in both.
    """
    module = configured(model, load_board(options.board, options.board_dirs), options)
    module = replace(module, pools=tuple(replace(p, size_bytes=None) for p in module.pools))
    for step in passes_for(options):
        if step.name == "lower-select":
            break
        module = step(module)
    lowering, planner = lowering_of(module, options), asked(options)
    return tuple(
        Tradeoff(item.workspace_bytes, item.instructions, item.segments)
        for item in programs(module, lowering.offers(), lowering.rows, planner)
    )
