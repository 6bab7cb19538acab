"""Sources of a firmware with several models.

Each model has its own C files. model/shared_constants.c defines the constants of
several models, and firmware/fwr_app.c runs the models in sequence. Jointly planned
models share pools; other models have separate ones. Tensors are called MODEL/TENSOR.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.codegen import constant_arrays
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import format_c_string
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS, EmitOptions
from firmwright.codegen.model_emitter import RUNTIME_ABI, RUNTIME_DTYPES, emit_model
from firmwright.codegen.model_identity import format_model_id, model_id
from firmwright.codegen.model_interface import (
    ModelInterface,
    PlacedBuffer,
    WorkspacePool,
    build_interface,
    collect_device_calls,
)
from firmwright.ir import tir
from firmwright.ir.constant_pools import constant_pools
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import used_constants

GLUE_FILE = "firmware/fwr_app.c"


@dataclass(frozen=True, slots=True)
class _GlueContext:
    """The template context of the glue: `models` as given, `runs` in run order."""

    models: tuple[ModelInterface, ...]
    runs: tuple[ModelInterface, ...]
    shared_pools: tuple[WorkspacePool, ...]

    def pool(self, model: ModelInterface, name: str) -> str:
        if self.shared_pools:
            return f"pool_{name}"
        return f"{model.names.prefix}_pool_{name}"

    def sharing(self) -> list[tuple[ModelInterface, WorkspacePool]]:
        """Return the pairs of a model and a shared pool, to compare their sizes."""
        pairs: list[tuple[ModelInterface, WorkspacePool]] = []
        if self.shared_pools:
            for model in self.models:
                pairs += [(model, pool) for pool in model.pools]
        return pairs

    @property
    def has_init(self) -> bool:
        return any(model.has_init or model.state for model in self.models)

    @property
    def consumes_input(self) -> bool:
        if not self.shared_pools:
            return any(model.consumes_input for model in self.models)
        inputs: list[PlacedBuffer] = []
        placed: list[PlacedBuffer] = []
        for model in self.models:
            fields = [tensor.field for tensor in model.inputs]
            placed += model.placed
            inputs += [place for place in model.placed if place.buffer.name in fields]
        for place in inputs:
            for other in placed:
                if other is not place and place.overlaps(other):
                    return True
        return False


def emit_multi_model_firmware(
    modules: Sequence[IRModule],
    intrinsics: IntrinsicTable,
    options: EmitOptions = DEFAULT_EMIT_OPTIONS,
    *,
    order: Sequence[int] = (),
    shared_bytes: Mapping[str, int] | None = None,
) -> SourceTree:
    """Emit several models as one firmware; raise UsageError if they cannot be combined.

    `order` lists positions in run order, `shared_bytes` the sizes of jointly planned
    pools.
    """
    check_models_combine(modules)
    shared: dict[str, Constant] = {}
    if not options.constants_in_header:
        using = list(map(_with_used_constants, modules))
        shared = constant_arrays.find_shared_constants(using)
    options = replace(options, prefix="", shared=constant_arrays.shared_symbols(shared))
    tree = SourceTree({})
    for module in modules:
        new: dict[str, str | bytes] = {}
        for path, content in emit_model(module, intrinsics, options).files.items():
            if path != GLUE_FILE and tree.files.get(path) != content:
                new[path] = content
        tree = tree.merged(SourceTree(new))
    if shared:
        section = options.section("const") or constant_arrays.DEFAULT_SECTION
        constants = constant_arrays.emit_shared_constants(shared, options.spdx, section)
        tree = tree.merged(constants)
    interfaces: list[ModelInterface] = []
    for module in modules:
        names = ModelNames(to_model_identifier(module.name))
        interfaces.append(build_interface(module, module.aot_main, names))
    models = tuple(interfaces)
    runs = tuple(models[index] for index in order) or models
    glue = _GlueContext(models, runs, _shared_pools(models, shared_bytes or {}))
    return tree.merged(SourceTree({GLUE_FILE: _text(glue, model_id(tree), options)}))


def _shared_pools(
    models: Sequence[ModelInterface], shared_bytes: Mapping[str, int]
) -> tuple[WorkspacePool, ...]:
    """Return one pool per name, with the size and alignment that all models need."""
    found = []
    for name, size_bytes in shared_bytes.items():
        mine: list[WorkspacePool] = []
        for model in models:
            mine += [pool for pool in model.pools if pool.name == name]
        alignment = max(pool.alignment for pool in mine)
        found.append(WorkspacePool(name, name, size_bytes, alignment, mine[0].section))
    return tuple(found)


def check_models_combine(modules: Sequence[IRModule]) -> None:
    names = [to_model_identifier(module.name) for module in modules]
    if len(names) < 2:
        raise UsageError("a firmware with several models needs at least two.")
    for name, other in combinations(names, 2):
        if name == other:
            raise UsageError(f"two models have the name {name}.", hint="--name.")
        if name.upper() == other.upper():
            what = f"the models {name} and {other} have the same macros."
            raise UsageError(what, hint="--name.")
    for module in modules:
        main, linked = module.entry, module.settings.link_params
        rows = module.io.stream_input_rows
        devices = collect_device_calls(main) if isinstance(main, tir.PrimFunc) else ()
        pools = constant_pools(module)
        rejected = (
            (not linked, "require linked constants", "--no-link-params"),
            (rows, "do not support row-streamed inputs", "--stream-input-rows"),
            (devices, "do not support multiple devices", "--devices and accelerators"),
            (pools, "do not support constant pools", "--const-pool"),
        )
        for present, problem, option in rejected:
            if present:
                what = f"several models {problem}."
                hint = f"compile without {option}."
                raise UsageError(what, where=module.name, hint=hint)


def _with_used_constants(module: IRModule) -> IRModule:
    names: set[str] = set()
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc):
            names.update(used_constants(function.body))
    constants = {name: c for name, c in module.constants.items() if name in names}
    return replace(module, constants=constants)


def _text(glue: _GlueContext, identity: str, options: EmitOptions) -> str:
    return render_template(
        "firmwright.codegen",
        "fwr_bundle.c.j2",
        glue=glue,
        models=glue.models,
        name="+".join(model.names.prefix for model in glue.models),
        options=options,
        abi=RUNTIME_ABI,
        dtypes=RUNTIME_DTYPES,
        id_rows=format_model_id(identity),
        c_string=format_c_string,
    )
