"""Summaries of compilations for metadata.json, `compile --json` and reports.

A summary depends only on the module and the options; it contains no machine names or
times.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firmwright import compilation_summary as summaries
from firmwright.base.json_input import JsonObject
from firmwright.base.version import ABI, METADATA_VERSION
from firmwright.compilation_summary import (
    BundleSummary,
    CompilationSummary,
    CompilerSummary,
)
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
    compiler: CompilerSummary | None = None,
    options: JsonObject | None = None,
) -> CompilationSummary:
    """Summarize a planned `module`; `compiler` is that of tuned sources."""
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
        compiler=compiler or CompilerSummary(),
        target={name: str(target) for name, target in sorted(module.targets.items())},
        numerics=module.settings.profile,
        options=dict(options or {}),
        io=_interface(module, plan),
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
        rejections=_rejections(module),
        compressed_bytes=module.results.compressed_bytes,
    )


def summarize_bundle(
    models: Sequence[CompilationSummary],
    run_order: Sequence[str],
    plan: Plan | None,
    *,
    model_id: str,
) -> BundleSummary:
    """Summarize models in one firmware.

    They share memory by `plan`. If it is None, they may run concurrently and have
    memory of their own, so that their figures are added. Equal constants of several
    models are stored once.
    """
    pool_bytes: Counter[str] = Counter()
    distinct_constants: dict[tuple[str, str], int] = {}
    for model in models:
        for name, pool in model.pools.items():
            pool_bytes[name] += pool.bytes
        for constant in model.constants:
            distinct_constants[constant.dtype, constant.sha256] = constant.size_bytes
    planned: Mapping[str, int] = pool_bytes
    lower_bound_bytes = sum(model.lower_bound_bytes for model in models)
    if plan is not None:
        planned = plan.pool_bytes
        lower_bound_bytes = plan.lower_bound_bytes
    first = models[0]
    pools: dict[str, summaries.PoolSummary] = {}
    for name in pool_bytes:
        pools[name] = replace(first.pools[name], bytes=planned.get(name, 0))
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
        lower_bound_bytes=lower_bound_bytes,
        pools=pools,
        constants_bytes=sum(distinct_constants.values()),
    )


def _interface(module: IRModule, plan: Plan | None) -> summaries.IoSummary:
    io, axis = module.io, module.settings.axis
    return summaries.IoSummary(
        io.mode,
        io.preserve_input,
        io.stream_input_rows,
        _tensors(io.inputs, plan),
        _tensors(io.outputs, plan),
        _tensors(io.state, plan),
        module.results.pipelined_runs,
        None if axis is None else (axis.name, axis.least, axis.most),
    )


def _tensors(
    tensors: Sequence[IoTensor], plan: Plan | None
) -> tuple[summaries.TensorSummary, ...]:
    return tuple(_tensor(tensor, plan) for tensor in tensors)


def _rejections(module: IRModule) -> tuple[summaries.RejectedOperator, ...]:
    rejections: list[summaries.RejectedOperator] = []
    for row in module.results.rejections:
        rejected = summaries.RejectedOperator(
            row.op, row.tensor, row.target, row.reason
        )
        rejections.append(rejected)
    return tuple(rejections)


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
    """Return the pools of the module and of the plan, in the order of their names."""
    constant_bytes: dict[str, int] = {}
    for pool in constant_pools(module):
        constant_bytes[pool.name] = pool_image_bytes(module, pool)
    used_bytes = dict(constant_bytes)
    if module.plan is not None:
        used_bytes = {**module.plan.pool_bytes, **constant_bytes}
    pools = {pool.name: pool for pool in module.pools}
    summary: dict[str, summaries.PoolSummary] = {}
    for name in sorted({*used_bytes, *pools}):
        used = used_bytes.get(name, 0)
        known = pools.get(name)
        if known is None:
            summary[name] = summaries.PoolSummary(used, None, "rw")
        else:
            limit, access = known.size_bytes, known.access
            scope = known.scope if name in constant_bytes else None
            summary[name] = summaries.PoolSummary(used, limit, access, scope)
    return summary


def _constants(
    module: IRModule, main: tir.PrimFunc
) -> tuple[summaries.ConstantSummary, ...]:
    """Return the constants in the code; those of equal type and bytes count once."""
    constants: dict[tuple[str, str], summaries.ConstantSummary] = {}
    for function in (*map(module.kernel, callees(main.body)), main):
        for name in used_constants(function.body):
            constant = module.constants[name]
            row = summaries.ConstantSummary(
                name,
                constant.dtype.name,
                tuple(constant.shape),
                constant.size_bytes,
                constant.digest,
                constant.pool,
            )
            constants.setdefault((constant.dtype.name, constant.digest), row)
    return tuple(constants.values())


def _operators(
    module: IRModule, main: tir.PrimFunc
) -> Iterator[summaries.OperatorSummary]:
    """Yield the operators by index; the first of several calls describes one."""
    first_calls: dict[int, tir.PrimFuncCall] = {}
    for call in prim_calls(main.body):
        if call.op >= 0:
            first_calls.setdefault(call.op, call)
    for index, call in sorted(first_calls.items()):
        kernel = module.kernel(call.callee)
        name, shape = _first_result(kernel, call)
        yield summaries.OperatorSummary(
            index=index,
            name=name or call.callee,
            kind=str(kernel.attrs.get("op", call.callee)),
            shape=shape,
            macs=int(str(kernel.attrs.get("macs", 0))),
            schedule=str(kernel.attrs.get("schedule", "")),
            kernel=kernel.code,
            span=str(call.span) if call.span.file else "",
            tensor=call.span.tensor,
        )


def _first_result(
    kernel: tir.PrimFunc, call: tir.PrimFuncCall
) -> tuple[str, tuple[int, ...]]:
    """Return the buffer of the call's first output and its shape, or "" and ()."""
    for param, arg in zip(kernel.params, call.args, strict=True):
        if param.role in ("out", "inout") and isinstance(arg, tir.AccessPtr):
            shape = param.value.shape if isinstance(param.value, tir.Buffer) else ()
            return arg.buffer.name, tuple(shape)
    return "", ()


def _scratch_bytes(plan: Plan) -> int:
    """Return the maximum number of scratch bytes that are live at the same time.

    The live bytes increase only where a live range begins, so that other times are not
    tried.
    """
    scratch = [info for info in plan.buffers if info.kind == "scratch"]
    starts: set[int] = set()
    for info in scratch:
        starts.update(live.first for live in info.live)
    most = 0
    for time in starts:
        live_bytes = 0
        for info in scratch:
            if any(live.first <= time < live.end for live in info.live):
                live_bytes += info.size_bytes
        most = max(most, live_bytes)
    return most


def _plan(plan: Plan, main: tir.PrimFunc) -> summaries.PlanSummary:
    buffers: list[summaries.PlannedBuffer] = []
    for info in plan.buffers:
        placement = plan.placements[info.name]
        buffer = summaries.PlannedBuffer(
            name=info.name,
            kind=info.kind,
            pool=placement.pool,
            offset=placement.offset,
            size_bytes=info.size_bytes,
            alignment=info.alignment,
            live=tuple((live.first, live.end) for live in info.live),
        )
        buffers.append(buffer)
    operators = tuple(_operator_by_time(main))
    return summaries.PlanSummary(plan.planner, operators, tuple(buffers))


def _operator_by_time(main: tir.PrimFunc) -> Iterator[int]:
    """Yield the operator at each time of the plan: for each call or other access."""
    for node in walk(main.body):
        match node:
            case tir.PrimFuncCall(op=op):
                yield op
            case tir.BufferStore() | tir.Evaluate():
                yield summaries.NO_OPERATOR
            case tir.If(cond=cond) | tir.While(cond=cond) if _loads(cond):
                yield summaries.NO_OPERATOR


def _loads(expression: tir.Expr) -> bool:
    return any(isinstance(node, tir.BufferLoad) for node in walk(expression))
