"""The one place that knows the order: a model goes in, planned module and C sources come out.

Every step is a `Pass` on the module. `passes_for` is the compiler; a module remembers the last
pass it went through (`attrs["stage"]`), so one that was saved goes on where it stopped, to the same
bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from firmwright.artifacts import SourceTree
from firmwright.base.deep_trees import allow_deep_trees
from firmwright.base.errors import DoesNotFitError, ModelError, UsageError
from firmwright.base.names import sanitise
from firmwright.base.version import VERSION
from firmwright.boards import Board, load_board
from firmwright.build import flags as build_flags
from firmwright.build.project import project_files
from firmwright.codegen.bundle import check_bundle, emit_bundle
from firmwright.codegen.house_rules import common_rules, rules_of
from firmwright.codegen.module import EmitOptions, emit, model_id
from firmwright.frontends.onnx import Given, complete, import_onnx, is_onnx
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.importer import import_model
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoBinding, IRModule, Pass
from firmwright.ir.text import parse_module
from firmwright.ir.tir.cost import Cost, cost
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.nodes import PrimFunc
from firmwright.ir.tir.verify import verify_module
from firmwright.ir.tir.walk import prim_calls
from firmwright.ir.tuning import UNTUNED, Tuning
from firmwright.lower.branches import lower_branches
from firmwright.lower.lower import Lowering
from firmwright.ops.registry import import_table, op_table
from firmwright.package.folder import with_file_list, write_folder
from firmwright.package.metadata import bundle_metadata, metadata
from firmwright.package.mlperf import Task, benchmark_project
from firmwright.package.recipe import recipe
from firmwright.partitioning.assign import assign
from firmwright.partitioning.choosing import asked_words, check_targets, resolve_targets
from firmwright.partitioning.custom import is_claimed
from firmwright.partitioning.devices import with_devices
from firmwright.partitioning.hooks import check_lowered, run_hook
from firmwright.partitioning.libraries import intrinsics_of, with_libraries
from firmwright.partitioning.phases import Stopwatch, for_targets, run_phase
from firmwright.partitioning.plan_devices import plan_devices
from firmwright.partitioning.tile_transfers import tile_transfers
from firmwright.passes import graph as graph_passes
from firmwright.passes import tir as tir_passes
from firmwright.passes.graph.pin import pin_tensors
from firmwright.passes.graph.recompute import recompute
from firmwright.passes.graph.split_devices import split_over_cores
from firmwright.passes.graph.windows import mark_windows
from firmwright.passes.tir.share_code import share_code
from firmwright.passes.tir.skeleton import skeleton
from firmwright.report.notebook import compiled_html
from firmwright.schedules.registry import INTRINSICS, RULES
from firmwright.select.candidates import Tradeoff
from firmwright.select.choice import Estimate
from firmwright.select.order import order_calls
from firmwright.select.select import Planner, programs, select_module
from firmwright.targets.cost_weights import weights_of
from firmwright.targets.registry import features, kind_of
from firmwright.usmp.board_pools import pools_of, with_program_speed
from firmwright.usmp.bound import needs_by_time
from firmwright.usmp.distances import KnownSpans
from firmwright.usmp.plan_module import plan
from firmwright.usmp.registry import DEFAULT as DEFAULT_PLANNER
from firmwright.usmp.resident import keep_constants
from firmwright.usmp.search import first_fits
from firmwright.usmp.together import check_apart, plan_together

OPTIMIZE_GOALS = ("speed", "size", "ram", "balanced")
NUMERICS = ("litert", "tflm")
C_APIS = ("own", "tvm")
Watch = Callable[[str, IRModule], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Everything a user may choose about a compilation; defaults are the contract's."""

    board: str = "host"
    target: str = ""
    numerics: str = "litert"
    optimize: str = "balanced"
    planner: str = DEFAULT_PLANNER
    io: str = "workspace"
    keep_input: bool = False
    input_rows: bool = False
    recompute: bool = False
    link_params: bool = True
    inline_asm: bool = True
    steps: bool = False
    c_api: str = "own"
    name: str = ""
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    pools: tuple[PoolInfo, ...] = ()
    pins: tuple[tuple[str, str], ...] = ()
    const_pools: tuple[PoolInfo, ...] = ()
    board_dirs: tuple[Path, ...] = ()
    tuning: Tuning = UNTUNED
    devices: tuple[str, ...] = ()
    fallback: bool = False
    places: tuple[tuple[str, str, str], ...] = ()
    c_standard: str = "c99"
    sections: tuple[tuple[str, str], ...] = ()
    license: str = ""
    constants_in_header: bool = False


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


def load(path: str | Path, *, name: str = "", given: Given = Given()) -> IRModule:
    """The module of a model file (.tflite, .onnx) or of a module's text (.fwir)."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the model cannot be read: {error.strerror}.", where=str(file), hint="another path."
        ) from error
    return load_bytes(completed(data, file, given), file.name, name=name)


def completed(data: bytes, file: Path, given: Given = Given()) -> bytes:
    """The model's bytes with all that it leaves open: `given`, and data that lie beside it."""
    if data[:10] != b"firmwright" and is_onnx(data, file.name):
        return complete(data, file.name, given, file.parent)
    if given.shapes or given.bindings:
        raise UsageError("--shape and --bind are for ONNX models.", where=str(file))
    return data


def load_bytes(data: bytes, file: str, *, name: str = "", signature: str = "") -> IRModule:
    """As `load`, from bytes; `file` names them in messages. A text is verified before any pass.

    `signature` is the entry point of a .tflite file that has several.
    """
    allow_deep_trees()
    if data[:10] == b"firmwright":
        try:
            module = parse_module(data.decode("utf-8"), file)
        except UnicodeDecodeError as error:
            raise ModelError("the module's text is not UTF-8.", where=file) from error
        verify_module(module, op_table(), intrinsics_of(module, INTRINSICS))
        return module
    name = name or sanitise(Path(file).stem)
    if is_onnx(data, file):
        return import_onnx(data, file, name, op_table(), is_claimed)
    raw = read_tflite(data, file)
    return import_model(raw, name, import_table(), data, op_table(), signature, is_claimed)


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


_BEFORE_LOWERING = (
    *graph_passes.PASSES,
    Pass("order", lambda module: order_calls(module, op_table())),
    Pass("recompute", lambda module: recompute(module, op_table())),
    Pass("split-devices", lambda module: split_over_cores(module, op_table())),
    Pass("tile-transfers", lambda module: tile_transfers(module, op_table())),
    Pass("plan-devices", lambda module: plan_devices(module, op_table())),
    Pass("windows", lambda module: mark_windows(module, op_table())),
)


def passes_for(options: Options, watch: Stopwatch | None = None) -> tuple[Pass, ...]:
    """The compiler: every pass, in order; `watch` writes down what each takes for each target."""
    seen = watch or Stopwatch()
    steps = (
        Pass("partition", lambda module: assign(module, seen)),
        *_BEFORE_LOWERING,
        Pass("relay-to-runtime", lambda module: run_hook(module, "relay_to_runtime", kind_of)),
        Pass("relay-to-tir", lambda module: run_hook(module, "relay_to_tir", kind_of)),
        Pass("plan-scopes", lambda module: plan_devices(module, op_table())),
        Pass("lower-select", lambda module: _lower_and_select(check_lowered(module), options)),
        Pass("after-scheduling", lambda m: run_phase(m, "after_scheduling", kind_of, seen)),
        *tir_passes.BEFORE_PLANNING,
        Pass("keep-constants", lambda module: keep_constants(module, options.planner)),
        Pass("usmp", lambda module: plan(module, options.planner)),
        Pass("after-planning", lambda m: run_phase(m, "after_planning", kind_of, seen)),
        Pass("share-code", lambda m: share_code(m, intrinsics_of(m, INTRINSICS), _price)),
        *tir_passes.AFTER_PLANNING,
        *(() if options.link_params else tir_passes.UNLINKED),
        Pass("tir-to-runtime", lambda module: run_hook(module, "tir_to_runtime", kind_of)),
        *tir_passes.CLEAN_UP,
    )
    names = tuple(step.name for step in steps)
    return tuple(for_targets(step, names, kind_of, seen) for step in steps)


def remaining(
    module: IRModule, options: Options, watch: Stopwatch | None = None
) -> tuple[Pass, ...]:
    """The passes that `module` has not been through."""
    steps = passes_for(options, watch)
    done = module.attrs.get("stage")
    names = [step.name for step in steps]
    return steps[names.index(str(done)) + 1 :] if done in names else steps


def configured(model: IRModule, board: Board, options: Options) -> IRModule:
    """`model` with the board's pools and target, and the options, written into it.

    A module that already went through a pass keeps what it was configured with.
    """
    if "stage" in model.attrs:
        return model
    _check(options)
    rules_of(options)
    targets = resolve_targets(board, options.target)
    module = replace(
        model,
        name=options.name or model.name,
        targets=targets,
        pools=pools_of(board, options, tuple(targets)),
        io=_io(model, options),
    ).with_attrs(
        numerics=options.numerics,
        optimize=options.optimize,
        planner=options.planner,
        link_params=options.link_params,
        board=board.name,
        **{
            name: value
            for name in ("ram_bytes", "flash_bytes")
            if (value := getattr(options, name)) is not None
        },
        **({"recompute": True} if options.recompute else {}),
        **({"tuning": options.tuning.digest} if options.tuning.layers else {}),
    )
    check_targets(module, board)
    module = with_devices(module, board, options.devices, options.places, fallback=options.fallback)
    return pin_tensors(with_program_speed(module, board, options), options.pins)


def _io(model: IRModule, options: Options) -> IoBinding:
    mode: Literal["workspace", "caller"] = "caller" if options.io == "caller" else "workspace"
    entry = model.entry
    if options.input_rows and isinstance(entry, Function) and len(entry.params) != 1:
        raise UsageError(
            f"--input-rows wants a model with one input; {model.name} has {len(entry.params)}."
        )
    return IoBinding(mode, options.keep_input, input_rows=options.input_rows)


def source_digest(data: bytes) -> str:
    """The hash that a module remembers its model file by."""
    return hashlib.sha256(data).hexdigest()


def _check(options: Options) -> None:
    for name, value, known in (
        ("numerics", options.numerics, NUMERICS),
        ("optimize", options.optimize, OPTIMIZE_GOALS),
        ("io", options.io, ("workspace", "caller")),
        ("c-api", options.c_api, C_APIS),
    ):
        if value not in known:
            raise UsageError(f"--{name} cannot be {value!r}.", hint=f"one of {', '.join(known)}.")


def _lower_and_select(module: IRModule, options: Options) -> IRModule:
    """Nothing is left to do for a module whose entry is an AOT main already."""
    if not isinstance(module.entry, Function):
        return module
    module = lower_branches(module, lambda part: lowering_of(part, options))
    lowering = lowering_of(module, options)
    return select_module(module, lowering.offers(), lowering.rows, _asked(options))


def _price(module: IRModule, kernel: PrimFunc, arguments: Mapping[str, int]) -> Cost:
    """What `kernel` costs with those values of its scalar parameters."""
    target = module.targets.get(str(kernel.attrs.get("target", "")))
    return cost(kernel, intrinsics_of(module, INTRINSICS), weights_of(target), arguments)


def lowering_of(module: IRModule, options: Options) -> Lowering:
    """What lowers a module's calls. Measurements are of kernels with inline assembly."""
    tuning = options.tuning if options.inline_asm else UNTUNED
    return Lowering(module, op_table(), RULES, INTRINSICS, features, tuning, weights_of)


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
    lowering, asked = lowering_of(module, options), _asked(options)
    return tuple(
        Tradeoff(item.workspace_bytes, item.instructions, item.segments)
        for item in programs(module, lowering.offers(), lowering.rows, asked)
    )


def _asked(options: Options) -> Planner:
    """What selection asks: kernels are looked into once, however many modules hold them."""
    known = KnownSpans()
    quick = first_fits if options.planner == DEFAULT_PLANNER else options.planner

    def estimate(candidate: IRModule) -> Estimate:
        unlimited = tuple(replace(pool, size_bytes=None) for pool in candidate.pools)
        made = plan(replace(candidate, pools=unlimited), quick, known).plan
        assert made is not None
        needs = needs_by_time(made.buffers, made.conflicts)
        return Estimate(made.workspace_bytes, _by_call(candidate, needs))

    def fits(candidate: IRModule) -> bool:
        for planner in dict.fromkeys((quick, options.planner)):
            try:
                plan(candidate, planner, known)
            except DoesNotFitError:
                continue
            return True
        return False

    def key(kernel: PrimFunc) -> Hashable:
        found = skeleton(kernel, INTRINSICS)
        return found.key if options.optimize == "size" else found.merging_key

    return Planner(estimate, fits, key)


def _by_call(module: IRModule, needs: Sequence[int]) -> dict[int, int]:
    """`needs` by the operator whose call is at each moment: the calls are what takes time."""
    main = module.entry
    assert isinstance(main, PrimFunc)
    calls = [call.op for call in prim_calls(main.body)]
    return dict(zip(calls, needs, strict=False))
