"""Planned modules: kinds of buffers, scratch, pools, and plan names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT8, INT32, INT64, UINT8
from firmwright.base.errors import (
    DoesNotFitError,
    InternalError,
    PluginError,
    UsageError,
)
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IoBinding, IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.plan import BufferInfo, LiveRange, Placement, Plan
from firmwright.ir.tir.traversal import walk
from firmwright.usmp.heuristics import greedy_by_size
from firmwright.usmp.interference import InplaceCache
from firmwright.usmp.memory_planning import plan_memory

X, A, Y = (
    tir.Buffer("x", INT8, (64,)),
    tir.Buffer("a", INT8, (64,)),
    tir.Buffer("y", INT8, (64,)),
)


def pointer(buffer: tir.Buffer, access: str) -> tir.AccessPtr:
    return tir.AccessPtr(buffer, tir.IntImm(0, INT64), buffer.elements, access)  # type: ignore[arg-type]


def call(
    callee: str, source: tir.Buffer, result: tir.Buffer, op: int
) -> tir.PrimFuncCall:
    return tir.PrimFuncCall(callee, (pointer(source, "r"), pointer(result, "w")), op=op)


def copy_kernel(
    name: str, scratch_bytes: int = 0, times: int = 2, **attrs: object
) -> tir.PrimFunc:
    """Return a kernel that copies `times` times; repeats cannot run in place."""
    b = Builder(name)
    x = b.buffer_param("x", INT8, (64,), "in")
    y = b.buffer_param("y", INT8, (64,), "out")
    with b.for_("again", times), b.for_("i", 64) as i:
        if scratch_bytes:
            acc = b.allocate("acc", INT32, (scratch_bytes // 4,), alignment=8)
            b.store(acc, [0], b.load_i32(x, [i]))
        b.store(y, [i], b.load(x, [i]))
    return b.build(op="copy", **attrs)  # type: ignore[arg-type]


def module_of(
    *kernels: tir.PrimFunc,
    pools: tuple[PoolInfo, ...] = (),
    body: tir.Stmt | None = None,
):
    first, second = kernels[0].name, kernels[-1].name
    calls: tir.Stmt = body or tir.Seq((call(first, X, A, 0), call(second, A, Y, 1)))
    for buffer, kind in ((A, "activation"), (Y, "output"), (X, "input")):
        calls = tir.Allocate(buffer, calls, kind)
    main = tir.PrimFunc("run", (), calls, {"aot_main": True})
    functions = {function.name: function for function in (*kernels, main)}
    return IRModule("net", functions, pools=pools, entry_name="run")


def infos(module: IRModule) -> dict[str, BufferInfo]:
    assert module.plan is not None
    return {info.name: info for info in module.plan.buffers}


def windows(module: IRModule) -> dict[str, tuple[str, int, int]]:
    """Return pool, offset and bytes of each view of the planned AOT main."""
    main = module.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    actual = {}
    for part in walk(main.body):
        assert not isinstance(part, tir.Allocate)
        if isinstance(part, tir.DeclBuffer):
            assert isinstance(part.source.offset, tir.IntImm)
            source = part.source
            actual[part.buffer.name] = (
                source.buffer.name,
                source.offset.value,
                source.extent,
            )
    return actual


def test_a_chain_of_two_copies_takes_two_buffers() -> None:
    planned = plan_memory(module_of(copy_kernel("first"), copy_kernel("second")))
    assert planned.plan is not None
    assert (planned.plan.workspace_bytes, planned.plan.lower_bound_bytes) == (128, 128)
    assert planned.pools == (PoolInfo("sram"),)
    assert infos(planned)["x"].live == (LiveRange(0, 1),)
    assert infos(planned)["y"].live == (LiveRange(1, 2),)
    assert {name: info.kind for name, info in infos(planned).items()} == {
        "x": "input",
        "y": "output",
        "a": "activation",
    }


def test_allocates_become_views_of_a_pool_parameter() -> None:
    planned = plan_memory(module_of(copy_kernel("copy")))
    main = planned.entry
    assert isinstance(main, tir.PrimFunc)
    pool = tir.Buffer("sram", UINT8, (128,), scope="pool", alignment=16)
    assert main.params == (tir.Param(pool, "pool"),)
    assert planned.plan is not None
    expected = {
        name: (p.pool, p.offset, 64) for name, p in planned.plan.placements.items()
    }
    assert windows(planned) == expected


def test_preserved_input_does_not_share_memory() -> None:
    module = replace(module_of(copy_kernel("copy")), io=IoBinding(preserve_input=True))
    planned = plan_memory(module)
    assert planned.plan is not None
    assert planned.plan.workspace_bytes == 192
    assert infos(planned)["x"].live == (LiveRange(0, 2),)


def test_state_is_always_live() -> None:
    state = tir.Buffer("s", INT8, (32,))
    body = tir.Seq((call("copy", X, A, 0), call("copy", A, Y, 1)))
    update = tir.PrimFuncCall("copy", (pointer(state, "r"), pointer(state, "w")), op=2)
    whole = tir.Allocate(state, tir.Seq((*body.stmts, update)), "state")
    planned = plan_memory(module_of(copy_kernel("copy"), body=whole))
    assert infos(planned)["s"].live == (LiveRange(0, 3),)
    assert infos(planned)["s"].kind == "state"


def test_unused_inputs_and_outputs_have_memory() -> None:
    planned = plan_memory(module_of(copy_kernel("copy"), body=call("copy", A, A, 0)))
    assert infos(planned)["x"].live == (LiveRange(0, 1),)
    assert infos(planned)["y"].live == (LiveRange(0, 1),)


def test_buffers_of_the_caller_are_not_in_a_pool() -> None:
    body = tir.Allocate(
        A, tir.Seq((call("copy", X, A, 0), call("copy", A, Y, 1))), "activation"
    )
    params = (tir.Param(X, "in"), tir.Param(Y, "out"))
    main = tir.PrimFunc("run", params, body, {"aot_main": True})
    functions = {"copy": copy_kernel("copy"), "run": main}
    planned = plan_memory(IRModule("net", functions, entry_name="run"))
    assert list(infos(planned)) == ["a"]
    assert isinstance(planned.entry, tir.PrimFunc)
    assert [(p.name, p.role) for p in planned.entry.params] == [
        ("x", "in"),
        ("y", "out"),
        ("sram", "pool"),
    ]


def test_scratch_of_a_kernel_is_planned_for_each_call_of_it() -> None:
    planned = plan_memory(module_of(copy_kernel("copy", scratch_bytes=40)))
    actual = infos(planned)
    assert actual["copy.acc"].live == (LiveRange(0, 1),)
    assert actual["copy.acc_2"].live == (LiveRange(1, 2),)
    assert (actual["copy.acc"].kind, actual["copy.acc"].alignment) == ("scratch", 8)
    assert planned.plan is not None
    assert planned.plan.workspace_bytes == 168
    kernel = planned.functions["copy"]
    assert isinstance(kernel, tir.PrimFunc)
    acc = tir.Buffer("acc", INT32, (10,), alignment=8)
    assert kernel.params[-1] == tir.Param(acc, "scratch")
    assert not any(isinstance(part, tir.Allocate) for part in walk(kernel.body))
    assert set(windows(planned)) == {"x", "a", "y", "copy_acc", "copy_acc_1"}
    assert isinstance(planned.entry, tir.PrimFunc)
    calls = [
        part for part in walk(planned.entry.body) if isinstance(part, tir.PrimFuncCall)
    ]
    last = [c.args[-1] for c in calls]
    assert last == [
        tir.AccessPtr(replace(acc, name=name), tir.IntImm(0, INT64), 10, "rw")
        for name in ("copy_acc", "copy_acc_1")
    ]
    assert [c.op for c in calls] == [0, 1]


def test_registers_stay_in_the_kernel() -> None:
    b = Builder("copy")
    x = b.buffer_param("x", INT8, (64,), "in")
    y = b.buffer_param("y", INT8, (64,), "out")
    acc = b.reg("acc", INT8)
    b.store(acc, [0], b.load(x, [0]))
    b.store(y, [0], b.load(acc, [0]))
    kernel = b.build()
    assert plan_memory(module_of(kernel)).functions["copy"] == kernel


def test_output_of_an_in_place_kernel_has_the_offset_of_its_input() -> None:
    planned = plan_memory(module_of(copy_kernel("copy", times=1)))
    assert planned.plan is not None
    assert (planned.plan.workspace_bytes, planned.plan.lower_bound_bytes) == (64, 64)
    assert set(windows(planned).values()) == {("sram", 0, 64)}


@pytest.mark.parametrize(("rows", "is_in_place"), [(16, True), (15, False)])
def test_an_input_may_be_overlapped_through_a_view_of_all_of_it(
    rows: int, is_in_place: bool
) -> None:
    view = tir.Buffer("view", INT8, (rows, 4))
    b = Builder("copy")
    x = b.buffer_param("x", INT8, view.shape, "in")
    y = b.buffer_param("y", INT8, (64,), "out")
    with b.for_("i", rows) as i, b.for_("j", 4) as j:
        b.store(y, [i * 4 + j], b.load(x, [i, j]))
    body = tir.DeclBuffer(view, pointer(X, "r"), call("copy", view, Y, 0))
    places = windows(plan_memory(module_of(b.build(op="copy"), body=body)))
    assert (places["x"] == places["y"]) == is_in_place


def test_output_can_reuse_either_input() -> None:
    kernel = copy_kernel("add", times=1)
    other = tir.Param(tir.Buffer("x2", INT8, (64,)), "in")
    add = replace(kernel, params=(kernel.params[0], other, kernel.params[1]))
    args = (pointer(X, "r"), pointer(A, "r"), pointer(Y, "w"))
    planned = plan_memory(module_of(add, body=tir.PrimFuncCall("add", args)))
    assert planned.plan is not None
    assert planned.plan.workspace_bytes == 128
    places = windows(planned)
    assert places["y"] in (places["x"], places["a"])


def test_an_input_that_is_passed_twice_is_not_computed_in_place() -> None:
    kernel = copy_kernel("add", times=1)
    other = tir.Param(tir.Buffer("x2", INT8, (64,)), "in")
    add = replace(kernel, params=(kernel.params[0], other, kernel.params[1]))
    args = (pointer(X, "r"), pointer(X, "r"), pointer(Y, "w"))
    planned = plan_memory(module_of(add, body=tir.PrimFuncCall("add", args)))
    places = windows(planned)
    assert places["x"] != places["y"]


def test_input_read_in_the_next_iteration_is_not_overwritten() -> None:
    """Both buffers are live only at the call, but the loop repeats the call."""
    times = tir.For(
        tir.Var("round", INT64),
        tir.IntImm(0, INT64),
        tir.IntImm(3, INT64),
        call("copy", X, Y, 0),
    )
    planned = plan_memory(module_of(copy_kernel("copy", times=1), body=times))
    places = windows(planned)
    assert places["x"] != places["y"]


@pytest.mark.parametrize("scratch_bytes", [0, 4])
def test_inplace_analysis_is_cached_across_plans(scratch_bytes: int) -> None:
    cache = InplaceCache()
    module = module_of(copy_kernel("copy", scratch_bytes, times=1))
    first = plan_memory(module, cache=cache)
    entries = dict(cache.entries)
    assert len(entries) == 1
    assert plan_memory(module, cache=cache).plan == first.plan
    assert cache.entries == entries


def test_buffer_is_in_a_pool_that_all_its_targets_can_access() -> None:
    first = copy_kernel("first", target="npu")
    second = copy_kernel("second", target="cpu")
    pools = (
        PoolInfo("rom", None, "ro"),
        PoolInfo("tcm", 64, targets=("cpu",)),
        PoolInfo("sram", targets=("cpu", "npu")),
    )
    planned = plan_memory(module_of(first, second, pools=pools))
    assert infos(planned)["a"].pools == ("sram",)
    assert infos(planned)["y"].pools == ("tcm", "sram")
    assert windows(planned)["y"][0] == "tcm"
    assert isinstance(planned.entry, tir.PrimFunc)
    assert [param.name for param in planned.entry.params] == ["tcm", "sram"]


def test_buffer_without_a_permitted_pool_is_an_error() -> None:
    module = module_of(
        copy_kernel("copy", target="npu"), pools=(PoolInfo("tcm", 9, targets=("cpu",)),)
    )
    with pytest.raises(
        UsageError, match="no pool may hold buffer x, which the code of npu"
    ):
        plan_memory(module)


def test_pool_has_the_widest_alignment_of_its_buffers() -> None:
    global_x = replace(X, alignment=64)
    main = tir.PrimFunc(
        "run",
        (),
        tir.Allocate(
            global_x, tir.Allocate(Y, call("copy", global_x, Y, 0), "output"), "input"
        ),
        {"aot_main": True},
    )
    module = IRModule(
        "net", {"copy": copy_kernel("copy"), "run": main}, entry_name="run"
    )
    planned = plan_memory(module)
    assert isinstance(planned.entry, tir.PrimFunc)
    pool = planned.entry.params[-1].value
    assert isinstance(pool, tir.Buffer)
    assert pool.alignment == 64


def test_a_pool_named_like_a_buffer_is_an_error() -> None:
    module = module_of(copy_kernel("copy"), pools=(PoolInfo("a"),))
    with pytest.raises(UsageError) as caught:
        plan_memory(module)
    assert str(caught.value) == (
        "pool a has the name of one of the model's buffers. Try: another name for the pool, "
        "by --pool."
    )


def test_planned_module_is_returned_unchanged() -> None:
    planned = plan_memory(module_of(copy_kernel("copy")))
    assert plan_memory(planned) is planned


def test_module_without_aot_main_is_an_internal_error() -> None:
    module = IRModule("net", {"main": copy_kernel("main")}, entry_name="main")
    with pytest.raises(
        InternalError, match="module net has no AOT main: lower it first"
    ):
        plan_memory(module)


def test_planner_can_be_a_function_and_is_validated() -> None:
    def everything_at_zero(buffers, conflicts, pools):
        places = {buffer.name: Placement("sram", 0) for buffer in buffers}
        return Plan("zero", places, {"sram": 64}, 0)

    module = module_of(copy_kernel("copy"))
    by_name, inputs = (
        plan_memory(module, "greedy_by_size"),
        plan_memory(module, greedy_by_size),
    )
    assert by_name.plan == inputs.plan
    with pytest.raises(
        PluginError, match="planner zero made an invalid plan: x at 0 and a at 0"
    ):
        plan_memory(module, everything_at_zero)


def test_module_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(DoesNotFitError) as caught:
        plan_memory(module_of(copy_kernel("copy"), pools=(PoolInfo("sram", 100),)))
    assert caught.value.lowest_bytes == 128
