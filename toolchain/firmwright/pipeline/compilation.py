"""Compilation of a module to C sources and metadata, alone or bundled with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from firmwright.artifacts import SourceTree, read_gcc_flags
from firmwright.base.errors import InternalError, UsageError
from firmwright.base.json_input import JsonObject
from firmwright.base.platform_compat import HAS_ELF_OBJECTS
from firmwright.base.recursion import call_with_stack, raise_recursion_limit
from firmwright.base.version import VERSION
from firmwright.boards import Board, load_board, with_const_pools
from firmwright.build import compiler_flags as build_flags
from firmwright.build.external_symbols import check_external_symbols
from firmwright.build.project_files import project_files
from firmwright.codegen.emit_options import check_common_style
from firmwright.codegen.model_emitter import emit_embedded_constants, emit_model
from firmwright.codegen.model_identity import model_id
from firmwright.codegen.multi_model_firmware import (
    check_models_combine,
    emit_multi_model_firmware,
)
from firmwright.compilation_summary import (
    BundleSummary,
    CompilationSummary,
    CompilerSummary,
)
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import ProgramRecord, digest_code, record_selection
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.verify import verify_module
from firmwright.ir.weight_stand_ins import StandIn, with_stand_ins
from firmwright.ops.registry import op_table
from firmwright.package.custom_main import FirmwareMain
from firmwright.package.metadata import summarize_bundle, summarize_compilation
from firmwright.package.option_serialization import serialize_options
from firmwright.package.project_writer import (
    add_file_list,
    metadata_file,
    with_facts,
    write_project,
)
from firmwright.partitioning.backend_libraries import (
    add_library_files,
    collect_intrinsics,
    generated_files,
)
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.target_resolution import (
    canonical_target_string,
    with_new_files,
)
from firmwright.pipeline.bounded_selection import check_bounded_options
from firmwright.pipeline.configuration import configure_module, make_emit_options
from firmwright.pipeline.interface_bound import check_interface_fits
from firmwright.pipeline.options import Options
from firmwright.pipeline.pass_list import SELECTION_PASS, remaining_passes
from firmwright.pipeline.program_update import check_code, check_same_options
from firmwright.pipeline.resized_models import ResizedModel
from firmwright.pipeline.selection_oracle import SelectionMemo
from firmwright.report.memory_map import compilation_html
from firmwright.schedules.registry import INTRINSICS
from firmwright.usmp.joint_plan import check_concurrent_fit, plan_jointly

PassObserver = Callable[[str, IRModule], None]
_CALLS_MAX = 500
"""Calls of a network that is compiled on the usual stack."""
_LAST_PRICED_PASS = "compress-weights"
"""The last pass after which kernels are those that the cost model prices."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredProgram:
    """A module after all passes, before any C is written.

    `imported` is the module before the first pass, with target, pools and options set.
    `selected` has the selected kernels as the cost model prices them: before passes
    merge and rewrite them. `record` has the choices, with which new weights can be
    compiled to the same code.
    """

    module: IRModule
    imported: IRModule
    selected: IRModule
    board: Board
    options: Options
    record: ProgramRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation(LoweredProgram):
    """The result of a compilation: a lowered program with its sources and metadata.

    `source` holds the bytes of the model file, if any, for the reference runtime.
    `firmware_main` is the main program of a firmware without the serial link.
    `resized` are the model's sizes if it has a bounded axis.
    """

    tree: SourceTree
    summary: CompilationSummary
    source: bytes | None = None
    firmware_main: FirmwareMain | None = None
    resized: Mapping[int, ResizedModel] = field(default_factory=dict)

    @property
    def metadata(self) -> JsonObject:
        """The summary as plain values, with the keys of `compile --json`."""
        return self.summary.to_json()

    @property
    def model_id(self) -> str:
        """The 32 hex digits by which the firmware identifies itself."""
        return self.summary.model_id

    @property
    def c_prefix(self) -> str:
        """The prefix of the model's C functions, which is the name of its C file."""
        sources: list[str] = []
        for path in self.tree.files:
            if path.startswith("model/") and path.endswith(".c"):
                sources.append(path)
        if len(sources) != 1:
            count = len(sources)
            raise InternalError(f"the compilation has {count} model files, not one.")
        return Path(sources[0]).stem

    @property
    def recorded_tree(self) -> SourceTree:
        """The tree whose metadata.json contains the choices that new weights keep."""
        if self.record is None:
            return self.tree
        return with_facts(self.tree, {"choices": self.record.to_json()})

    def project(self) -> SourceTree:
        """Return all files of a self-contained project that builds with `scons`."""
        files = project_files(self.board, c_standard=self.options.c_standard)
        project = self.recorded_tree.merged(files)
        if self.firmware_main is None:
            return project
        return self.firmware_main.make_project(project, self.module.io, self.board)

    def project_to_run(self) -> SourceTree:
        """Return a project for the cache of builds, which builds the same firmware.

        On this computer, its large constants are embedded instead of C arrays.
        """
        project = self.project()
        if not self.board.is_host or not HAS_ELF_OBJECTS:
            return project
        options = make_emit_options(self.board, self.options)
        embedded = emit_embedded_constants(add_library_files(self.module), options)
        return SourceTree({**project.files, **embedded.files})

    def save(self, directory: str | Path) -> None:
        write_project(self.project(), Path(directory))

    def _repr_html_(self) -> str:
        return compilation_html(self.summary)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Compilations for one board in one firmware, which share equal constants."""

    parts: tuple[Compilation, ...]
    tree: SourceTree
    summary: BundleSummary

    @property
    def board(self) -> Board:
        return self.parts[0].board

    @property
    def metadata(self) -> JsonObject:
        return self.summary.to_json()

    @property
    def model_id(self) -> str:
        return model_id(self.tree)

    def project(self) -> SourceTree:
        standard = self.parts[0].options.c_standard
        return self.tree.merged(project_files(self.board, c_standard=standard))

    def project_to_run(self) -> SourceTree:
        """Return a project for the cache of builds, here that of `project`."""
        return self.project()

    def save(self, directory: str | Path) -> None:
        write_project(self.project(), Path(directory))


def compile_model(
    model: IRModule,
    options: Options,
    *,
    source: bytes | None = None,
    watch: PassObserver | None = None,
    stopwatch: PassTimer | None = None,
    resized: Mapping[int, ResizedModel] = MappingProxyType({}),
) -> Compilation:
    """Compile `model` for a board; `watch` gets the module after every pass.

    `resized` are the model's sizes if it has a bounded axis.
    """

    def run() -> Compilation:
        decided = _with_choices_for_all_weights(model, options)
        program = _lower(model, decided, watch, stopwatch, resized=resized)
        return replace(emit_compilation(program, source), resized=resized)

    return _with_enough_stack(model, run)


def lower_program(
    model: IRModule,
    options: Options,
    memo: SelectionMemo | None = None,
    resized: Mapping[int, ResizedModel] = MappingProxyType({}),
) -> LoweredProgram:
    """Run all passes on `model`; raise as `compile_model` does.

    A `memo` is that of other compilations of the same model, `resized` are its sizes if
    it has a bounded axis.
    """

    def run() -> LoweredProgram:
        decided = _with_choices_for_all_weights(model, options)
        return _lower(model, decided, memo=memo, resized=resized)

    return _with_enough_stack(model, run)


def _with_enough_stack(model: IRModule, run: Callable[[], T]) -> T:
    model.require_trust()
    raise_recursion_limit()
    return call_with_stack(run) if _is_large(model) else run()


def _is_large(module: IRModule) -> bool:
    entry = module.entry
    if isinstance(entry, Function):
        results = 0
        for call in entry.body:
            results += max(1, len(call.outputs))
        return results > _CALLS_MAX
    return len(module.functions) > _CALLS_MAX


def _lower(
    model: IRModule,
    options: Options,
    watch: PassObserver | None = None,
    stopwatch: PassTimer | None = None,
    memo: SelectionMemo | None = None,
    resized: Mapping[int, ResizedModel] = MappingProxyType({}),
) -> LoweredProgram:
    board = load_board(options.board, options.board_dirs)
    board = with_const_pools(board, options.const_pools)
    imported = module = configure_module(model, board, options)
    if options.update_of is not None:
        check_same_options(
            options.update_of, _resolved(options, module, board), board.name
        )
    check_interface_fits(module)
    check_bounded_options(module, options)
    graphs: dict[int, IRModule] = {}
    for size, resized_model in resized.items():
        graphs[size] = configure_module(resized_model.module, board, options)
    record: ProgramRecord | None = None
    selected: IRModule | None = None
    for step in remaining_passes(module, options, stopwatch, memo, graphs):
        is_lowered = isinstance(module.entry, tir.PrimFunc)
        if selected is None and is_lowered and step.name != _LAST_PRICED_PASS:
            selected = module
        before, module = module, step(module).with_stage(step.stage)
        if step.name == SELECTION_PASS:
            record = record_selection(before, module)
        if watch is not None:
            watch(step.name, module)
    if options.update_of is not None:
        check_code(options.update_of, module)
    if record is not None:
        record = replace(record, code=digest_code(module))
    return LoweredProgram(
        module=module,
        imported=imported,
        selected=selected or module,
        board=board,
        options=options,
        record=record,
    )


def _resolved(options: Options, module: IRModule, board: Board) -> Options:
    """Return the options to record.

    The choices for all weights are left out, since they follow from the other options.
    """
    update_of = None if options.weight_independent else options.update_of
    target = canonical_target_string(module.targets, board)
    return replace(options, target=target, update_of=update_of)


def _with_choices_for_all_weights(model: IRModule, options: Options) -> Options:
    """Add the choices for stand-in weights, unless the options follow other choices."""
    if (
        not options.weight_independent
        or options.update_of is not None
        or model.is_started
    ):
        return options
    stand_in = with_stand_ins(model, StandIn.FULL_RANGE)
    chosen = emit_compilation(_lower(stand_in, options), None)
    return replace(options, update_of=record_of(chosen))


def record_of(compiled: Compilation) -> ProgramRecord | None:
    """Return the choices of a compilation, for `Options.update_of` with new weights."""
    summary = compiled.summary
    return compiled.record and replace(
        compiled.record,
        name=summary.model,
        board=summary.board,
        tool_version=summary.tool_version,
        options=summary.options,
    )


def emit_compilation(program: LoweredProgram, source: bytes | None) -> Compilation:
    """Write the C sources and the metadata of a program."""
    module, board, options = program.module, program.board, program.options
    intrinsics = collect_intrinsics(module, INTRINSICS)
    verify_module(module, op_table(), intrinsics)
    with_files = add_library_files(module)
    check_external_symbols(with_files.files, generated_files(module))
    tree = emit_model(with_files, intrinsics, make_emit_options(board, options, module))
    resolved = _resolved(options, module, board)
    summary = summarize_compilation(
        module,
        board.name,
        model_id=model_id(tree),
        tool_version=VERSION,
        compiler=_compiler_summary(board, tree),
        options=serialize_options(resolved),
    )
    return Compilation(
        module=module,
        imported=program.imported,
        selected=program.selected,
        board=board,
        options=options,
        record=program.record,
        tree=tree.merged(_metadata_file(summary, tree)),
        summary=summary,
        source=source,
    )


def _compiler_summary(board: Board, tree: SourceTree) -> CompilerSummary:
    """Return the compiler and all flags with which a build compiles the model's C."""
    flags = list(build_flags.tuning_flags(board))
    for path, text in tree.files.items():
        if path.startswith("model/") and path.endswith(".c") and isinstance(text, str):
            flags += read_gcc_flags(text)
    return CompilerSummary(build_flags.gnu_tool(board, "gcc"), tuple(flags))


def _metadata_file(
    summary: CompilationSummary | BundleSummary, tree: SourceTree
) -> SourceTree:
    return metadata_file(add_file_list(summary.to_json(), tree))


def bundle(parts: Sequence[Compilation], *, concurrent: bool = False) -> Bundle:
    """Combine the models of `parts` in one firmware.

    The models run in sequence and share their pools; with `concurrent` each has its own
    memory. On the link, tensors are named MODEL/TENSOR. Raises UsageError if the parts
    cannot be combined, DoesNotFitError if memory is short.
    """
    boards = sorted({part.board.name for part in parts})
    if len(boards) > 1:
        names = ", ".join(boards)
        raise UsageError(f"the models are compiled for several boards: {names}.")
    modules = [part.module for part in parts]
    check_models_combine(modules)
    order, shared = tuple(range(len(parts))), None
    if concurrent:
        check_concurrent_fit(modules)
    else:
        joint = plan_jointly(modules, parts[0].options.planner)
        order, shared = joint.order, joint.plan
        planned: list[Compilation] = []
        for part, module in zip(parts, joint.modules, strict=True):
            joined = replace(part, module=module, record=None)
            planned.append(emit_compilation(joined, part.source))
        parts = planned
    inline_asm = all(part.options.inline_asm for part in parts)
    steps = any(part.options.emit_step_api for part in parts)
    check_common_style([make_emit_options(part.board, part.options) for part in parts])
    common = replace(parts[0].options, inline_asm=inline_asm, emit_step_api=steps)
    intrinsics: IntrinsicTable = INTRINSICS
    for part in parts:
        intrinsics = collect_intrinsics(part.module, intrinsics)
    with_files = [add_library_files(part.module) for part in parts]
    backend_files = parts[0].module
    for module in with_files:
        origin = f"the model {module.name}"
        backend_files = with_new_files(backend_files, module.files, origin)
    generated: frozenset[str] = frozenset()
    for part in parts:
        generated |= generated_files(part.module)
    check_external_symbols(backend_files.files, generated)
    tree = emit_multi_model_firmware(
        with_files,
        intrinsics,
        make_emit_options(parts[0].board, common),
        order=order,
        shared_bytes=shared.pool_bytes if shared else None,
    )
    summary = summarize_bundle(
        [part.summary for part in parts],
        [parts[index].module.name for index in order],
        shared,
        model_id=model_id(tree),
    )
    return Bundle(tuple(parts), tree.merged(_metadata_file(summary, tree)), summary)
