"""Summaries of compilations for metadata.json, `compile --json` and reports.

A summary depends only on the module and the options; it contains no machine names or times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firmwright import compilation_summary as summaries
from firmwright.base.version import ABI, METADATA_VERSION
from firmwright.compilation_summary import BundleSummary, CompilationSummary
from firmwright.ir import tir
from firmwright.ir.constant_pools import constant_pools, pool_image_bytes
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.plan import Plan
from firmwright.ir.tir.traversal import callees, prim_calls, used_constants, walk


def summarize_compilation(
    module: IRModule,
    board: str = "",
    *,
    model_id: str = "",
    tool_version: str = "",
    compiler: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
) -> CompilationSummary:
    """Summarize a planned `module`; `compiler` has the tool and flags of tuned sources."""
    main = module.aot_main
    plan = module.plan
    constants = _constants(module, main)
    operators = tuple(_operators(module, main))
    return CompilationSummary(
        schema=METADATA_VERSION,
        abi=ABI,
        tool_version=tool_version,
        model=module.name,
        model_id=model_id,
        source_sha256=module.origin.sha256,
        board=board,
        compiler=dict(compiler or {}),
        target={name: str(target) for name, target in sorted(module.targets.items())},
        numerics=module.settings.profile,
        options=dict(options or {}),
        io=summaries.IoSummary(
            module.io.mode,
            module.io.preserve_input,
            module.io.stream_input_rows,
            tuple(_tensor(tensor, plan) for tensor in module.io.inputs),
            tuple(_tensor(tensor, plan) for tensor in module.io.outputs),
            tuple(_tensor(tensor, plan) for tensor in module.io.state),
            module.results.pipelined_runs,
        ),
        workspace_bytes=plan.workspace_bytes if plan else 0,
        lower_bound_bytes=plan.lower_bound_bytes if plan else 0,
        optimality_gap_bytes=plan.optimality_gap_bytes if plan else 0,
        scratch_bytes=_scratch_bytes(plan) if plan else 0,
        pools=_pools(module),
        constants_bytes=sum(constant.size_bytes for constant in constants),
        constants=constants,
        operators=operators,
        operator_count=1 + max((operator.index for operator in operators), default=-1),
        plan=_plan(plan, main) if plan else None,
        rejections=tuple(
            summaries.RejectedOperator(row.op, row.tensor, row.target, row.reason)
            for row in module.results.rejections
        ),
        compressed_bytes=module.results.compressed_bytes,
    )


def summarize_bundle(
    models: Sequence[CompilationSummary],
    run_order: Sequence[str],
    plan: Plan | None,
    *,
    model_id: str,
) -> BundleSummary:
    pool_bytes: dict[str, int] = {}
    for model in models:
        for name, pool in model.pools.items():
            pool_bytes[name] = pool_bytes.get(name, 0) + pool.bytes
    planned = pool_bytes if plan is None else plan.pool_bytes
    bounds = sum(model.lower_bound_bytes for model in models)
    first = models[0]
    distinct_constants = {
        (constant.dtype, constant.sha256): constant.size_bytes
        for model in models
        for constant in model.constants
    }
    return BundleSummary(
        schema=METADATA_VERSION,
        model="+".join(model.model for model in models),
        model_id=model_id,
        board=first.board,
        target=first.target,
        models=tuple(models),
        run_order=tuple(run_order),
        concurrent=plan is None,
        workspace_bytes=sum(planned.values()),
        lower_bound_bytes=bounds if plan is None else plan.lower_bound_bytes,
        pools={name: replace(first.pools[name], bytes=planned.get(name, 0)) for name in pool_bytes},
        constants_bytes=sum(distinct_constants.values()),
    )


def _tensor(tensor: IoTensor, plan: Plan | None) -> summaries.TensorSummary:
    quantization = tensor.type.quantization
    placement = plan.placements.get(tensor.buffer) if plan else None
    return summaries.TensorSummary(
        name=tensor.name,
        field=tensor.buffer,
        dtype=tensor.type.dtype.name,
        shape=tensor.type.shape,
        size_bytes=tensor.type.size_bytes,
        scales=tuple(quantization.scales) if quantization else None,
        zero_points=tuple(quantization.zero_points) if quantization else None,
        pool=placement.pool if placement else None,
        offset=placement.offset if placement else None,
    )


def _pools(module: IRModule) -> dict[str, summaries.PoolSummary]:
    constant_bytes = {p.name: pool_image_bytes(module, p) for p in constant_pools(module)}
    used_bytes = {**(module.plan.pool_bytes if module.plan else {}), **constant_bytes}
    pools = {pool.name: pool for pool in module.pools}
    return {
        name: summaries.PoolSummary(
            used_bytes.get(name, 0),
            pools[name].size_bytes if name in pools else None,
            pools[name].access if name in pools else "rw",
            pools[name].scope if name in constant_bytes else None,
        )
        for name in sorted({*used_bytes, *pools})
    }


def _constants(module: IRModule, main: tir.PrimFunc) -> tuple[summaries.ConstantSummary, ...]:
    """Return the constants in the emitted code; constants with equal type and bytes count once."""
    constants: dict[tuple[str, str], summaries.ConstantSummary] = {}
    for function in (*map(module.kernel, callees(main.body)), main):
        for name in used_constants(function.body):
            c = module.constants[name]
            facts = (c.dtype.name, tuple(c.shape), c.size_bytes, c.digest, c.pool)
            row = summaries.ConstantSummary(name, *facts)
            constants.setdefault((c.dtype.name, c.digest), row)
    return tuple(constants.values())


def _operators(module: IRModule, main: tir.PrimFunc) -> Iterator[summaries.OperatorSummary]:
    calls = [call for call in prim_calls(main.body) if call.op >= 0]
    first_calls = {call.op: call for call in reversed(calls)}
    for index, call in sorted(first_calls.items()):
        kernel = module.kernel(call.callee)
        yield summaries.OperatorSummary(
            index=index,
            name=_result_name(kernel, call) or call.callee,
            kind=str(kernel.attrs.get("op", call.callee)),
            macs=int(str(kernel.attrs.get("macs", 0))),
            schedule=str(kernel.attrs.get("schedule", "")),
            kernel=kernel.code,
            span=str(call.span) if call.span.file else "",
            tensor=call.span.tensor,
        )


def _result_name(kernel: tir.PrimFunc, call: tir.PrimFuncCall) -> str:
    for param, arg in zip(kernel.params, call.args, strict=True):
        if param.role in ("out", "inout") and isinstance(arg, tir.AccessPtr):
            return arg.buffer.name
    return ""


def _scratch_bytes(plan: Plan) -> int:
    """Return the maximum number of scratch bytes that are live at the same time."""
    scratch = [info for info in plan.buffers if info.kind == "scratch"]
    times = sorted({live.first for info in scratch for live in info.live})
    live = ((i for i in scratch if any(r.first <= t < r.end for r in i.live)) for t in times)
    return max((sum(info.size_bytes for info in infos) for infos in live), default=0)


def _plan(plan: Plan, main: tir.PrimFunc) -> summaries.PlanSummary:
    return summaries.PlanSummary(
        plan.planner,
        tuple(_operator_by_time(main)),
        tuple(
            summaries.PlannedBuffer(
                name=info.name,
                kind=info.kind,
                pool=plan.placements[info.name].pool,
                offset=plan.placements[info.name].offset,
                size_bytes=info.size_bytes,
                alignment=info.alignment,
                live=tuple((live.first, live.end) for live in info.live),
            )
            for info in plan.buffers
        ),
    )


def _operator_by_time(main: tir.PrimFunc) -> Iterator[int]:
    """Yield the operator at each time of the memory plan: one for each call or other access."""
    for node in walk(main.body):
        match node:
            case tir.PrimFuncCall(op=op):
                yield op
            case tir.BufferStore():
                yield summaries.NO_OPERATOR
            case tir.If(cond=cond) | tir.While(cond=cond) if any(
                isinstance(n, tir.BufferLoad) for n in walk(cond)
            ):
                yield summaries.NO_OPERATOR
