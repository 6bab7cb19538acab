"""The values of a compiled model from which templates print its example."""

from collections.abc import Mapping
from typing import Any

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.dtypes import get_dtype
from firmwright.compilation_summary import CompilationSummary, TensorSummary


def model_values(summary: CompilationSummary, devices: Mapping[str, str]) -> dict[str, Any]:
    """Return names, memory and calls of one model; `devices` as in ExportInput."""
    name = to_c_identifier(summary.model)
    upper, io = name.upper(), summary.io
    filled = {pool: facts for pool, facts in summary.pools.items() if facts.bytes}
    memory = {pool: f"{upper}_{pool.upper()}" for pool in filled}
    scopes = {pool: facts.scope for pool, facts in filled.items()}
    inputs, outputs = ([_tensor(upper, t) for t in kind] for kind in (io.inputs, io.outputs))
    buffers = [*([] if io.stream_input_rows else inputs), *outputs]
    is_linked = summary.options.get("link_params", True)
    more = [*([] if is_linked else [f"&{name}_params"]), *([f"&{name}_devices"] if devices else [])]
    more += ["NULL"] * bool(summary.options.get("emit_probe_callback"))
    has_init = any(b.kind == "const" for b in (summary.plan.buffers if summary.plan else ()))
    return {
        "name": name,
        "NAME": upper,
        "summary": summary,
        "pools": [{"name": p, "macro": memory[p]} for p, scope in scopes.items() if scope is None],
        "const_pools": [
            {"name": pool, "macro": memory[pool], "scope": scope}
            for pool, scope in scopes.items()
            if scope in ("external", "port", "async")
        ],
        "inputs": inputs,
        "outputs": outputs,
        "in_pools": io.mode == "arena",
        "buffers": [] if io.mode == "arena" else buffers,
        "rows": inputs[0] if io.stream_input_rows else None,
        "is_linked": is_linked,
        "more_arguments": "".join(f", {item}" for item in more),
        "has_init": has_init,
        "has_state": bool(io.state),
        "is_pipelined": bool(io.pipeline_runs),
        "needs_preparation": has_init or bool(io.state) or not is_linked,
        "devices": devices,
    }


def _tensor(prefix: str, tensor: TensorSummary) -> dict[str, Any]:
    dtype = get_dtype(tensor.dtype)
    return {
        "field": tensor.field,
        "macro": f"{prefix}_{tensor.field.upper()}",
        "c_type": dtype.c_type,
        "is_float": dtype.is_float,
        "summary": tensor,
    }
