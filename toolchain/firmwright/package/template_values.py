"""The names that templates of packages know: of models, their memory and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.dtypes import BOOL, FLOAT4_E2M1FN, DType, get_dtype
from firmwright.compilation_summary import (
    BundleSummary,
    CompilationSummary,
    TensorSummary,
)
from firmwright.package.export_input import ExportInput


def template_values(exported: ExportInput) -> dict[str, object]:
    """Return the names that the templates of all formats know."""
    summary = exported.summary
    files = exported.files
    models = [model_values(model, exported.devices) for model in exported.models]
    sources = [file for file in files if file.is_source]
    compiler = exported.models[0].compiler
    library_flags: dict[str, None] = {}
    compiler_flags: dict[str, None] = {}
    for file in sources:
        library_flags |= dict.fromkeys(file.flags)
        if file.is_generated:
            compiler_flags |= dict.fromkeys(file.gcc_flags)
    pool_names: dict[str, None] = {}
    prints_floats = False
    for model in models:
        for pool in model.pools:
            pool_names[pool.name] = None
        for tensor in model.outputs:
            prints_floats = prints_floats or tensor.is_float
    return {
        "name": exported.name,
        "NAME": exported.name.upper(),
        "place": exported.name,
        "title": " and ".join(model.name for model in models),
        "noun": "network" if len(models) == 1 else "networks",
        "package": exported.metadata,
        "models": models,
        "summary": summary,
        "tool_version": exported.models[0].tool_version,
        "compiler": " ".join([compiler.tool, *compiler.flags]),
        "sources": sources,
        "objects": [file for file in files if file.is_object],
        "needs_math": any("#include <math.h>" in file.text for file in sources),
        "library_flags": list(library_flags),
        "gcc_flags": list(compiler_flags),
        "headers": [file for file in files if file.is_header],
        "prints_floats": prints_floats,
        "pool_names": list(pool_names),
        "shares_memory": isinstance(summary, BundleSummary) and not summary.concurrent,
    }


@dataclass(frozen=True, slots=True)
class PoolValues:
    """A pool for templates: name, prefix of its macros, and access to constants."""

    name: str
    macro: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class TensorValues:
    """An input or output for templates: C field, prefix of its macros, C type.

    `is_float` is that of the C type, `has_fractions` of stored numbers, too.
    """

    field: str
    macro: str
    c_type: str
    is_float: bool
    has_fractions: bool
    byte_mask: int
    summary: TensorSummary


@dataclass(frozen=True, slots=True)
class ModelValues:
    """The names, memory and calls of one model for templates.

    `buffers` are those that the caller provides, `rows` is the input that is streamed
    by rows, `axis` that with the size of a bounded axis, and `more_arguments` are the
    optional ones of a run. `NAME` is the prefix of the macros.
    """

    name: str
    NAME: str
    summary: CompilationSummary
    pools: Sequence[PoolValues]
    const_pools: Sequence[PoolValues]
    inputs: Sequence[TensorValues]
    outputs: Sequence[TensorValues]
    in_pools: bool
    buffers: Sequence[TensorValues]
    rows: TensorValues | None
    axis: TensorValues | None
    is_linked: bool
    more_arguments: str
    has_init: bool
    has_state: bool
    is_pipelined: bool
    needs_preparation: bool
    devices: Mapping[str, str]


def model_values(
    summary: CompilationSummary, devices: Mapping[str, str]
) -> ModelValues:
    """Return the values of one model; `devices` as in ExportInput."""
    name = to_model_identifier(summary.model)
    upper = name.upper()
    io = summary.io
    pools: list[PoolValues] = []
    const_pools: list[PoolValues] = []
    for pool, facts in summary.pools.items():
        macro = f"{upper}_{pool.upper()}"
        if facts.bytes and facts.scope is None:
            pools.append(PoolValues(pool, macro))
        elif facts.bytes and facts.scope in ("external", "port", "async"):
            const_pools.append(PoolValues(pool, macro, facts.scope))
    inputs = [_tensor(upper, tensor) for tensor in io.inputs]
    outputs = [_tensor(upper, tensor) for tensor in io.outputs]
    # The caller provides no buffers in the arena, and none for a streamed input.
    buffers: list[TensorValues] = []
    if io.mode != "arena":
        buffers = outputs if io.stream_input_rows else inputs + outputs
    is_linked = summary.options.get("link_params", True) is True
    has_init = False
    if summary.plan is not None:
        has_init = any(buffer.kind == "const" for buffer in summary.plan.buffers)
    return ModelValues(
        name=name,
        NAME=upper,
        summary=summary,
        pools=pools,
        const_pools=const_pools,
        inputs=inputs,
        outputs=outputs,
        in_pools=io.mode == "arena",
        buffers=buffers,
        rows=inputs[0] if io.stream_input_rows else None,
        axis=next(
            (t for t in inputs if io.axis and t.summary.name == io.axis[0]), None
        ),
        is_linked=is_linked,
        more_arguments=_more_arguments(name, summary, devices),
        has_init=has_init,
        has_state=bool(io.state),
        is_pipelined=bool(io.pipeline_runs),
        needs_preparation=has_init or bool(io.state) or not is_linked,
        devices=devices,
    )


def _axis(
    inputs: Sequence[TensorValues], summary: CompilationSummary
) -> TensorValues | None:
    """Return the input with the size of a bounded axis, if there is one."""
    if summary.io.axis is None:
        return None
    name, *_ = summary.io.axis
    return next(tensor for tensor in inputs if tensor.summary.name == name)


def _more_arguments(
    name: str, summary: CompilationSummary, devices: Mapping[str, str]
) -> str:
    """Return the optional arguments of a run, each after a comma.

    They are parameters, devices and probe.
    """
    arguments = ""
    if not summary.options.get("link_params", True) and not devices:
        arguments += f", &{name}_params"
    if devices:
        arguments += f", &{name}_devices"
    if summary.options.get("emit_probe_callback"):
        arguments += ", NULL"
    return arguments


def _tensor(prefix: str, tensor: TensorSummary) -> TensorValues:
    dtype = get_dtype(tensor.dtype)
    return TensorValues(
        field=tensor.field,
        macro=f"{prefix}_{tensor.field.upper()}",
        c_type=dtype.c_type,
        is_float=dtype.is_float,
        has_fractions=dtype.has_fractions,
        byte_mask=byte_mask(dtype),
        summary=tensor,
    )


def byte_mask(dtype: DType) -> int:
    """Return the bits of each byte of a self-test's inputs.

    Those of storage types are finite and not negative.
    """
    if dtype == BOOL:
        return 1
    if not dtype.computed_as:
        return 0xFF
    if dtype.computed.is_int:
        return dtype.max
    return 0x07 if dtype is FLOAT4_E2M1FN else 0x3F
