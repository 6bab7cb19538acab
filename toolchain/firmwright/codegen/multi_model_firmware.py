"""Sources of a firmware with several models.

Each model has its own C files. model/shared_constants.c defines the constants of
several models, and firmware/fwr_app.c runs the models in sequence. Jointly planned
models share pools; other models have separate ones. Tensors are called MODEL/TENSOR.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_c_identifier
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
    WorkspacePool,
    build_interface,
    collect_device_calls,
)
from firmwright.ir import tir
from firmwright.ir.constant_pools import constant_pools
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import used_constants

GLUE_FILE = "firmware/fwr_app.c"


@dataclass(frozen=True, slots=True)
class _GlueContext:
    """The template context of the glue; `models` are in the given order, `runs` in run
    order.
    """

    models: tuple[ModelInterface, ...]
    runs: tuple[ModelInterface, ...]
    shared_pools: tuple[WorkspacePool, ...]

    def pool(self, model: ModelInterface, name: str) -> str:
        return (
            f"pool_{name}" if self.shared_pools else f"{model.names.prefix}_pool_{name}"
        )

    def sharing(self) -> list[tuple[ModelInterface, WorkspacePool]]:
        """Return all pairs of a model and a shared pool that it uses, for comparing
        sizes.
        """
        return [
            (model, pool)
            for model in self.models
            if self.shared_pools
            for pool in model.pools
        ]

    @property
    def has_init(self) -> bool:
        return any(model.has_init or model.state for model in self.models)

    @property
    def consumes_input(self) -> bool:
        if not self.shared_pools:
            return any(model.consumes_input for model in self.models)
        inputs = {
            (m.names.prefix, tensor.field) for m in self.models for tensor in m.inputs
        }
        placed = {
            (m.names.prefix, p.buffer.name): p for m in self.models for p in m.placed
        }
        return any(
            placed[a].overlaps(placed[b])
            for a in placed.keys() & inputs
            for b in placed.keys() - {a}
        )


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
    shared = {}
    if not options.constants_in_header:
        shared = constant_arrays.find_shared_constants(
            [_with_used_constants(module) for module in modules]
        )
    options = replace(options, prefix="", shared=constant_arrays.shared_symbols(shared))
    tree = SourceTree({})
    for module in modules:
        files = emit_model(module, intrinsics, options).files
        new = {
            p: c for p, c in files.items() if p != GLUE_FILE and tree.files.get(p) != c
        }
        tree = tree.merged(SourceTree(new))
    if shared:
        section = options.section("const") or constant_arrays.DEFAULT_SECTION
        tree = tree.merged(
            constant_arrays.emit_shared_constants(shared, options.spdx, section)
        )
    names = [ModelNames(to_c_identifier(module.name)) for module in modules]
    models = tuple(
        build_interface(m, m.aot_main, n) for m, n in zip(modules, names, strict=True)
    )
    runs = tuple(models[index] for index in order) or models
    glue = _GlueContext(models, runs, _shared_pools(models, shared_bytes or {}))
    return tree.merged(SourceTree({GLUE_FILE: _text(glue, model_id(tree), options)}))


def _shared_pools(
    models: Sequence[ModelInterface], shared_bytes: Mapping[str, int]
) -> tuple[WorkspacePool, ...]:
    """Return one pool per name, with the size and alignment that all models need."""
    found = []
    for name, size_bytes in shared_bytes.items():
        mine = [pool for model in models for pool in model.pools if pool.name == name]
        alignment = max(pool.alignment for pool in mine)
        found.append(WorkspacePool(name, name, size_bytes, alignment, mine[0].section))
    return tuple(found)


def check_models_combine(modules: Sequence[IRModule]) -> None:
    names = [to_c_identifier(module.name) for module in modules]
    if len(names) < 2:
        raise UsageError("a firmware with several models needs at least two.")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two models have the name {name}.", hint="--name.")
    for module in modules:
        main, linked = module.entry, module.settings.link_params
        rows = module.io.stream_input_rows
        several_devices = isinstance(main, tir.PrimFunc) and bool(
            collect_device_calls(main)
        )
        rejected = (
            (not linked, "require linked constants", "--no-link-params"),
            (rows, "do not support row-streamed inputs", "--stream-input-rows"),
            (
                several_devices,
                "do not support multiple devices",
                "--devices and accelerators",
            ),
            (constant_pools(module), "do not support constant pools", "--const-pool"),
        )
        for present, problem, option in rejected:
            if present:
                hint = f"compile without {option}."
                raise UsageError(
                    f"several models {problem}.", where=module.name, hint=hint
                )


def _with_used_constants(module: IRModule) -> IRModule:
    functions = [f for f in module.functions.values() if isinstance(f, tir.PrimFunc)]
    names = {name for function in functions for name in used_constants(function.body)}
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
