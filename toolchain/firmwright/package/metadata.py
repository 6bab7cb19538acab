"""metadata.json: the description of a compilation as plain JSON values.

It contains the keys of `compile --json`, and the model's tensors, constants, memory plan and
options. Sizes and offsets are in bytes. It depends on the module only, not on machine or time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firmwright.base.errors import InternalError
from firmwright.base.version import ABI, METADATA_VERSION
from firmwright.ir import tir
from firmwright.ir.constant_pools import build_pool_image, constant_pools
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.plan import BufferInfo, Plan
from firmwright.ir.tir.traversal import callees, prim_calls, used_constants, walk

SCHEMA = METADATA_VERSION
FWR_ABI = ABI
"""The version of the runtime interface that the emitted glue requires."""


def build_metadata(
    module: IRModule,
    board: str = "",
    *,
    model_id: str = "",
    tool_version: str = "",
    compiler: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata of the planned `module`.

    `model_id` identifies the emitted sources, `compiler` holds the tool and flags that they are
    tuned for.
    """
    main = _aot_main(module)
    plan = module.plan
    return {
        "schema": SCHEMA,
        "abi": FWR_ABI,
        "tool_version": tool_version,
        "model": module.name,
        "model_id": model_id,
        "source_sha256": str(module.attrs.get("source_sha256", "")),
        "board": board,
        "compiler": dict(compiler or {}),
        "target": {name: str(target) for name, target in sorted(module.targets.items())},
        "numerics": str(module.attrs.get("numerics", "litert")),
        "options": dict(sorted(_attrs(module).items())),
        "recipe": dict(recipe or {}),
        "io": {
            "mode": module.io.mode,
            "preserve_input": module.io.preserve_input,
            "stream_input_rows": module.io.stream_input_rows,
            "inputs": [_tensor(tensor, plan) for tensor in module.io.inputs],
            "outputs": [_tensor(tensor, plan) for tensor in module.io.outputs],
            **({"state": [_tensor(s, plan) for s in module.io.state]} if module.io.state else {}),
        },
        "workspace_bytes": plan.workspace_bytes if plan else 0,
        "lower_bound_bytes": plan.lower_bound_bytes if plan else 0,
        "optimality_gap_bytes": plan.optimality_gap_bytes if plan else 0,
        "scratch_bytes": _scratch_bytes(plan) if plan else 0,
        "pools": _pools(module),
        "constants_bytes": sum(row["size_bytes"] for row in _constants(module, main)),
        "constants": _constants(module, main),
        "operators": list(_operators(module, main)),
        "plan": _plan(plan, main) if plan else None,
    }


def build_bundle_metadata(
    models: Sequence[Mapping[str, Any]], runs: Sequence[str], plan: Plan | None, *, model_id: str
) -> dict[str, Any]:
    """Return the metadata of several models in one firmware; `runs` is their run order.

    `plan` is the joint plan if the models share pools; None if each has its own.
    """
    own = [{name: row["bytes"] for name, row in model["pools"].items()} for model in models]
    summed = {name: sum(mine.get(name, 0) for mine in own) for mine in own for name in mine}
    pool_bytes = summed if plan is None else plan.pool_bytes
    bounds = sum(model["lower_bound_bytes"] for model in models)
    return {
        "schema": SCHEMA,
        "model": "+".join(model["model"] for model in models),
        "model_id": model_id,
        "board": models[0]["board"],
        "target": models[0]["target"],
        "models": [dict(model) for model in models],
        "run_order": list(runs),
        "concurrent": plan is None,
        "workspace_bytes": sum(pool_bytes.values()),
        "lower_bound_bytes": bounds if plan is None else plan.lower_bound_bytes,
        "pools": {
            name: {**models[0]["pools"][name], "bytes": pool_bytes.get(name, 0)} for name in summed
        },
        "constants_bytes": _distinct_bytes(models),
    }


def _distinct_bytes(models: Sequence[Mapping[str, Any]]) -> int:
    """Return the size of all constants, counting equal ones once."""
    rows = {
        (row["dtype"], row["sha256"]): row["size_bytes"]
        for model in models
        for row in model["constants"]
    }
    return sum(rows.values())


def _aot_main(module: IRModule) -> tir.PrimFunc:
    main = module.entry
    if not isinstance(main, tir.PrimFunc):
        raise InternalError(f"module {module.name} is not lowered")
    return main


def _attrs(module: IRModule) -> dict[str, Any]:
    """Return the options that the module carries."""
    skipped = {"entry", "source_sha256", "stage", "numerics"}
    return {name: value for name, value in module.attrs.items() if name not in skipped}


def _tensor(tensor: IoTensor, plan: Plan | None) -> dict[str, Any]:
    quantization = tensor.type.quantization
    place = plan.placements.get(tensor.buffer) if plan else None
    return {
        "name": tensor.name,
        "field": tensor.buffer,
        "dtype": tensor.type.dtype.name,
        "shape": list(tensor.type.shape),
        "size_bytes": tensor.type.size_bytes,
        "scales": list(quantization.scales) if quantization else None,
        "zero_points": list(quantization.zero_points) if quantization else None,
        "pool": place.pool if place else None,
        "offset": place.offset if place else None,
    }


def _pools(module: IRModule) -> dict[str, Any]:
    pool_bytes = dict(module.plan.pool_bytes) if module.plan else {}
    rest = {pool.name: len(build_pool_image(module, pool).data) for pool in constant_pools(module)}
    pool_bytes |= rest
    limits = {pool.name: pool for pool in module.pools}
    return {
        name: {
            "bytes": pool_bytes.get(name, 0),
            "limit_bytes": limits[name].size_bytes if name in limits else None,
            "access": limits[name].access if name in limits else "rw",
            **({"scope": limits[name].scope} if name in rest else {}),
        }
        for name in sorted({*pool_bytes, *limits})
    }


def _constants(module: IRModule, main: tir.PrimFunc) -> list[dict[str, Any]]:
    """Return the constants used by the emitted code; equal bytes and type count once."""
    rows: dict[str, dict[str, Any]] = {}
    for function in (*_kernels(module, main), main):
        for name in used_constants(function.body):
            constant = module.constants[name]
            row = {
                "name": name,
                "dtype": constant.dtype.name,
                "shape": list(constant.shape),
                "size_bytes": constant.size_bytes,
                "sha256": constant.digest,
                "pool": constant.pool,
            }
            rows.setdefault(f"{constant.dtype.name}:{constant.digest}", row)
    return list(rows.values())


def _kernels(module: IRModule, main: tir.PrimFunc) -> Iterator[tir.PrimFunc]:
    return (_kernel(module, callee) for callee in callees(main.body))


def _kernel(module: IRModule, name: str) -> tir.PrimFunc:
    function = module.functions[name]
    if not isinstance(function, tir.PrimFunc):
        raise InternalError(f"{name} is called but is no PrimFunc of module {module.name}")
    return function


def _operators(module: IRModule, main: tir.PrimFunc) -> Iterator[dict[str, Any]]:
    """Yield one row per operator index, in ascending order."""
    first: dict[int, tir.PrimFuncCall] = {}
    for call in prim_calls(main.body):
        if call.op >= 0:
            first.setdefault(call.op, call)
    for index, call in sorted(first.items()):
        kernel = _kernel(module, call.callee)
        yield {
            "index": index,
            "name": _result_name(kernel, call) or call.callee,
            "kind": str(kernel.attrs.get("op", call.callee)),
            "macs": kernel.attrs.get("macs", 0),
            "schedule": str(kernel.attrs.get("schedule", "")),
            "kernel": kernel.code,
            "span": str(call.span) if call.span.file else "",
            "tensor": call.span.tensor,
        }


def _result_name(kernel: tir.PrimFunc, call: tir.PrimFuncCall) -> str:
    """Return the buffer of the AOT main that the call writes first."""
    for param, arg in zip(kernel.params, call.args, strict=True):
        if param.role in ("out", "inout") and isinstance(arg, tir.AccessPtr):
            return arg.buffer.name
    return ""


def _scratch_bytes(plan: Plan) -> int:
    """Return the peak of simultaneously live scratch."""
    scratch = [info for info in plan.buffers if info.kind == "scratch"]
    times = sorted({live.first for info in scratch for live in info.live})
    return max((_live_bytes(scratch, time) for time in times), default=0)


def _live_bytes(buffers: list[BufferInfo], time: int) -> int:
    return sum(
        info.size_bytes
        for info in buffers
        if any(live.first <= time < live.end for live in info.live)
    )


def _plan(plan: Plan, main: tir.PrimFunc) -> dict[str, Any]:
    """Return the plan; `steps` maps each time of the live ranges to an operator, or -1."""
    return {
        "planner": plan.planner,
        "operator_by_time": list(_steps(main)),
        "buffers": [_placed(info, plan) for info in plan.buffers],
    }


def _steps(main: tir.PrimFunc) -> Iterator[int]:
    """Yield the operator at each time of the planner: calls, and other accesses to memory."""
    for node in walk(main.body):
        match node:
            case tir.PrimFuncCall(op=op):
                yield op
            case tir.BufferStore():
                yield -1
            case tir.If(cond=cond) | tir.While(cond=cond) if _loads(cond):
                yield -1
            case _:
                pass


def _loads(expr: tir.Expr) -> bool:
    return any(isinstance(node, tir.BufferLoad) for node in walk(expr))


def _placed(info: BufferInfo, plan: Plan) -> dict[str, Any]:
    place = plan.placements[info.name]
    return {
        "name": info.name,
        "kind": info.kind,
        "pool": place.pool,
        "offset": place.offset,
        "size_bytes": info.size_bytes,
        "alignment": info.alignment,
        "live": [[live.first, live.end] for live in info.live],
    }
