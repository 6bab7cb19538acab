"""TIR passes: meaning is kept, no-ops are the identical module, names are deterministic."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmwright.base.dtypes import BOOL, INT8, INT32, INT64, DType
from firmwright.ir.core import Constant, Span
from firmwright.ir.module import IRModule
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import Builder, call, logical_and, maximum, minimum, select
from firmwright.ir.tir.interp import Interpreter, interpret
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
    Buffer,
    BufferLoad,
    BufferStore,
    CallPrim,
    Cast,
    Expr,
    For,
    If,
    IntImm,
    Let,
    Not,
    Param,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Var,
)
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.verify import verify_module
from firmwright.ir.tir.walk import Node, local_names, walk
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.passes import BY_NAME
from firmwright.passes import graph as graph_passes
from firmwright.passes.tir import (
    AFTER_PLANNING,
    BEFORE_PLANNING,
    CLEAN_UP,
    UNLINKED,
    hoist_params,
    merge_functions,
)
from firmwright.passes.tir.narrow_index import narrow
from firmwright.passes.tir.simplify import simplify, simplify_expr
from firmwright.passes.tir.unroll import unroll

# ---- random expressions ------------------------------------------------------------------------

ROW, COLUMN = Var("i", INT64), Var("j", INT64)
X = Buffer("x", INT8, (8,))


def leaves() -> st.SearchStrategy[Expr]:
    load = BufferLoad(X, (Binary("add", COLUMN, IntImm(3, INT64)),))
    return st.one_of(
        st.integers(-9, 9).map(lambda value: IntImm(value, INT64)),
        st.sampled_from([ROW, COLUMN, Cast(INT64, load)]),
    )


def compound(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    comparisons = st.builds(
        Binary, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), parts, parts
    )
    conditions = st.one_of(
        comparisons,
        comparisons.map(Not),
        st.builds(Binary, st.sampled_from(["and", "or"]), comparisons, comparisons),
    )
    positive = st.integers(1, 7).map(lambda value: IntImm(value, INT64))
    return st.one_of(
        st.builds(Binary, st.sampled_from(["add", "sub", "mul", "min", "max"]), parts, parts),
        st.builds(Binary, st.sampled_from(["div", "mod", "shr"]), parts, positive),
        st.builds(Select, conditions, parts, parts),
        parts.map(lambda part: Cast(INT64, Cast(INT32, part))),
    )


EXPRESSIONS = st.recursive(leaves(), compound, max_leaves=8)


def evaluated(func: PrimFunc, values: np.ndarray[tuple[int], np.dtype[np.int8]]) -> list[int]:
    """What `func` stores, the same with lanes and one step after the other."""
    out, serial = np.zeros((6, 8), np.int64), np.zeros((6, 8), np.int64)
    interpret(func, {"x": values, "y": out}, {})
    Interpreter({"f": func}, {}, {}, lanes_max=1).run("f", {"x": values, "y": serial})
    np.testing.assert_array_equal(out, serial)
    return [int(value) for value in out.reshape(-1)]


def tabulated(value: Expr) -> PrimFunc:
    """A kernel that stores `value` for every i and j."""
    y = Buffer("y", INT64, (6, 8))
    store = BufferStore(y, (ROW, Binary("add", COLUMN, IntImm(3, INT64))), value)
    inner = For(COLUMN, IntImm(-3, INT64), IntImm(8, INT64), store)
    outer = For(ROW, IntImm(0, INT64), IntImm(6, INT64), inner)
    return PrimFunc("f", (Param(X, "in"), Param(y, "out")), outer)


@pytest.mark.parametrize("change", [simplify, narrow, lambda f: simplify(narrow(simplify(f)))])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(value=EXPRESSIONS)
def test_random_expressions_keep_their_value(
    change: Callable[[PrimFunc], PrimFunc], value: Expr
) -> None:
    func = tabulated(value)
    values = np.random.default_rng(0).integers(-128, 128, 8).astype(np.int8)
    assert evaluated(change(func), values) == evaluated(func, values)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(value=EXPRESSIONS)
def test_simplifying_twice_changes_nothing_more(value: Expr) -> None:
    once = simplify(tabulated(value))
    assert simplify(once) == once


# ---- single rules ------------------------------------------------------------------------------


def i32(value: int) -> IntImm:
    return IntImm(value, INT32)


A, B = Var("a", INT32), Var("b", INT32)
TRUE, FALSE = IntImm(1, BOOL), IntImm(0, BOOL)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Binary("add", A, i32(0)), A),
        (Binary("add", i32(0), A), A),
        (Binary("mul", A, i32(1)), A),
        (Binary("mul", A, i32(0)), i32(0)),
        (Binary("sub", A, A), i32(0)),
        (Binary("mod", A, i32(1)), i32(0)),
        (Binary("add", Binary("add", A, i32(3)), i32(4)), Binary("add", A, i32(7))),
        (Binary("sub", Binary("add", A, i32(3)), i32(3)), A),
        (Binary("sub", Binary("add", A, i32(3)), i32(5)), Binary("sub", A, i32(2))),
        (Binary("min", Binary("min", A, i32(3)), i32(4)), Binary("min", A, i32(3))),
        (Binary("div", i32(-7), i32(2)), i32(-3)),
        (Binary("mod", i32(-7), i32(2)), i32(-1)),
        (Binary("lt", A, Binary("add", A, i32(1))), TRUE),
        (Not(Binary("lt", A, B)), Binary("ge", A, B)),
        (Not(Not(Binary("lt", A, B))), Binary("lt", A, B)),
        (Binary("lt", i32(3), A), Binary("gt", A, i32(3))),
        (Select(TRUE, A, B), A),
        (Select(Binary("lt", A, B), A, A), A),
        (Cast(INT32, A), A),
        (Cast(INT8, i32(5)), IntImm(5, INT8)),
        (Binary("and", Binary("lt", A, B), TRUE), Binary("lt", A, B)),
        (Binary("and", Binary("lt", A, B), FALSE), FALSE),
        (Binary("or", Binary("lt", A, B), TRUE), TRUE),
    ],
)
def test_rules_of_algebra(before: Expr, after: Expr) -> None:
    assert simplify_expr(before, Bounds()) == after


@pytest.mark.parametrize(
    "kept",
    [
        Binary("add", i32(2**31 - 1), i32(1)),
        Binary("div", i32(1), i32(0)),
        Cast(INT8, i32(300)),
        Binary("div", Binary("mul", A, i32(2)), i32(2)),
        Binary("mul", A, i32(2)),
    ],
)
def test_what_has_no_exact_answer_stays_the_same_object(kept: Expr) -> None:
    assert simplify_expr(kept, Bounds()) is kept


def test_a_branch_does_not_assume_what_it_changes_itself() -> None:
    """The inner guard reads memory that the outer branch has just written."""
    b = Builder("f")
    y = b.buffer_param("y", INT32, (1,), "inout")
    with b.if_(b.load(y, [0]) > 3):
        b.store(y, [0], 0)
        with b.if_(b.load(y, [0]) > 3):
            b.store(y, [0], 99)
    func = b.build()
    out = np.array([5], np.int32)
    interpret(simplify(func), {"y": out}, {})
    assert out[0] == 0


def test_loops_of_one_iteration_and_lets_of_a_variable_disappear() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (8,), "out")
    with b.for_("i", 8) as i, b.for_("one", 1) as one, b.let("at", i + one) as at:
        b.store(y, [at], 3)
    body = simplify(b.build()).body
    assert not any(isinstance(node, Let) for node in walk(body))
    assert sum(isinstance(node, For) for node in walk(body)) == 1


def test_unrolled_copies_have_names_of_their_own() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (12,), "in"), b.buffer_param("y", INT32, (3,), "out")
    with b.for_("r", 3, kind="unrolled") as r, b.window("row", x, r * 4, (4,)) as row:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with b.for_("k", 4) as k, b.let("at", k + 0) as at:
            b.store(acc, [0], b.load(acc, [0]) + b.load(row, [at]))
        b.store(y, [r], b.load(acc, [0]))
    func = b.build()
    unrolled = unroll(func)
    assert local_names(unrolled) == {
        *("x", "y", "row", "acc", "k", "at"),
        *("row_1", "acc_1", "k_1", "at_1", "row_2", "acc_2", "k_2", "at_2"),
    }
    values = np.arange(12, dtype=np.int32)
    out = np.zeros(3, np.int32)
    interpret(unrolled, {"x": values, "y": out}, {})
    assert out.tolist() == values.reshape(3, 4).sum(axis=1).tolist()
    assert unroll(unrolled) is unrolled
    assert not any(isinstance(node, For) for node in walk(unroll(func, extent_max=4).body))


def test_indices_become_32_bit_and_wide_values_stay() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT64, (8,), "in"), b.buffer_param("y", INT64, (8,), "out")
    with b.for_("i", 8) as i:
        b.store(y, [i], b.load(x, [i]) * 3)
    func = narrow(b.build())
    variables = {node for node in walk(func.body) if isinstance(node, Var)}
    assert variables == {Var("i", INT32)}
    out = np.zeros(8, np.int64)
    interpret(func, {"x": np.full(8, 2**40), "y": out}, {})
    assert out.tolist() == [3 * 2**40] * 8


# ---- whole modules -----------------------------------------------------------------------------


def kernel(name: str, seed: int, zero_point: int, channels: int = 6, row: bool = True) -> Builder:
    """A pointwise convolution with requantisation; an unrolled schedule with a packed column."""
    rng = np.random.default_rng(seed)
    b = Builder(name, Span("m.tflite", 0, seed, name))
    x = b.buffer_param("x", INT8, (6, 4), "in")
    y = b.buffer_param("y", INT8, (6, channels), "out")
    w = b.constant("w", rng.integers(-127, 128, (channels, 4)), INT8)
    bias = b.constant("bias", rng.integers(-999, 999, channels), INT32)
    with b.for_("block", 3) as block, b.allocate("column", INT32, (2, 4)) as column:
        with b.for_("p", 2) as p, b.for_("k", 4) as k, b.let("at", block * 2 + p) as at:
            inside = logical_and(at >= 0, at < 6)
            with b.if_(inside):
                b.store(column, [p, k], b.load_i32(x, [minimum(at, 5), k]) - zero_point)
        with b.for_("oc", channels) as oc:
            acc = b.reg("acc", INT32, 2)
            with b.for_("q", 2, kind="unrolled") as q:
                b.store(acc, [q], b.load(bias, [oc]))
                with b.for_("k", 4) as k:
                    product = b.load(column, [q, k]) * b.load_i32(w, [oc, k])
                    b.store(acc, [q], b.load(acc, [q]) + product)
                arguments = [b.load(acc, [q]), 1518500250, -6]
                scaled = call("requantize_twice", arguments, INT32)
                clamped = minimum(maximum(scaled, -128), 127)
                b.store(y, [block * 2 + q, oc], select(oc >= 0, clamped, 0).cast(INT8))
    return b


def chain(specs: list[tuple[int, int]]) -> IRModule:
    """A module whose main runs kernels of one shape one after the other: (seed, zero point)."""
    functions: dict[str, PrimFunc] = {}
    constants: dict[str, Constant] = {}
    buffers = [Buffer(f"t{n}", INT8, (6, 4), alignment=4) for n in range(len(specs) + 1)]
    calls: list[Stmt] = []
    zero = IntImm(0, INT64)
    for n, (seed, zero_point) in enumerate(specs):
        b = kernel(f"conv_{n}", seed, zero_point, channels=4)
        func = b.build(op="conv2d", comment="conv2d 6x4 -> 6x4")
        functions[func.name] = func
        constants.update(b.constants)
        args = (
            AccessPtr(buffers[n], zero, 24, "r"),
            AccessPtr(buffers[n + 1], zero, 24, "w"),
        )
        calls.append(CallPrim(func.name, args, func.span, n))
    body: Stmt = Seq(tuple(calls))
    for buffer in reversed(buffers[1:-1]):
        body = Allocate(buffer, body, "activation")
    params = (Param(buffers[0], "in"), Param(buffers[-1], "out"))
    functions["run"] = PrimFunc("run", params, body, {"aot_main": True})
    return IRModule("chain", functions, constants, attrs={"entry": "run"})


def outputs(module: IRModule) -> list[int]:
    functions = {n: f for n, f in module.functions.items() if isinstance(f, PrimFunc)}
    main = functions["run"]
    out = np.zeros((6, 4), np.int8)
    x = np.random.default_rng(9).integers(-128, 128, (6, 4)).astype(np.int8)
    names = [param.name for param in main.params]
    args = dict(zip(names, (x, out), strict=True))
    Interpreter(functions, BASE_INTRINSICS, module.constants).run("run", args)
    return [int(value) for value in out.reshape(-1)]


ALL = (*BEFORE_PLANNING, *AFTER_PLANNING, *UNLINKED, *CLEAN_UP)


def stages(module: IRModule) -> Iterator[tuple[str, IRModule]]:
    for step in ALL:
        module = step(module)
        yield step.name, module


def test_every_pass_keeps_the_outputs_and_leaves_a_valid_module() -> None:
    module = chain([(1, 3), (2, 3), (1, -7), (3, 3)])
    expected = outputs(module)
    for name, after in stages(module):
        assert outputs(after) == expected, name
        verify_module(after, {}, BASE_INTRINSICS)


def test_a_pass_that_finds_nothing_to_do_returns_the_identical_module() -> None:
    module = chain([(1, 3), (2, 3)])
    for step in ALL:
        module = step(module)
        assert step(module) is module, step.name


def test_passes_share_what_they_do_not_change() -> None:
    module = chain([(1, 3), (2, 3)])
    tidy = BY_NAME["simplify"](BY_NAME["unroll"](module))
    touched = tidy.with_function(kernel("extra", 5, 0, channels=4).build())
    again = BY_NAME["simplify"](touched)
    assert again.functions["conv_0"] is tidy.functions["conv_0"]
    assert again.functions["extra"] is not touched.functions["extra"]


def test_passes_are_deterministic() -> None:
    first, second = (list(stages(chain([(1, 3), (2, 4), (3, 5)]))) for _ in range(2))
    assert first == second


def test_pass_names_are_unique() -> None:
    assert len(BY_NAME) == len({step.name for step in BY_NAME.values()})
    assert set(BY_NAME) == {step.name for step in (*ALL, *graph_passes.PASSES)}


# ---- merging kernels ---------------------------------------------------------------------------


def merged(module: IRModule) -> IRModule:
    return merge_functions.PASS(BY_NAME["merge-constants"](module))


def test_kernels_equal_but_for_constants_become_one() -> None:
    module = chain([(1, 3), (2, 3), (3, 3)])
    after = merged(module)
    assert set(after.functions) == {"conv_0", "run"}
    func = after.functions["conv_0"]
    assert isinstance(func, PrimFunc)
    assert [(p.name, p.role) for p in func.params[2:]] == [("w", "const"), ("bias", "const")]
    assert func.attrs["comment"] == "conv2d 6x4 -> 6x4\nServes operators 1, 2, 3."
    assert outputs(after) == outputs(module)


def test_differing_immediates_become_scalar_parameters() -> None:
    module = chain([(1, 3), (1, 4)])
    after = merged(module)
    func = after.functions["conv_0"]
    assert isinstance(func, PrimFunc)
    assert [(p.name, p.role) for p in func.params[2:]] == [("scalar_0", "scalar")]
    assert any(isinstance(node, AllocateConst) for node in walk(func.body))
    main = after.functions["run"]
    assert isinstance(main, PrimFunc)
    calls = [node for node in walk(main.body) if isinstance(node, CallPrim)]
    assert [node.args[-1] for node in calls] == [i32(3), i32(4)]
    assert [node.op for node in calls] == [0, 1]
    assert outputs(after) == outputs(module)


def test_kernels_of_another_schedule_or_operator_stay_apart() -> None:
    module = chain([(1, 3), (2, 3)])
    other = module.functions["conv_1"]
    assert isinstance(other, PrimFunc)
    marked = replace(other, attrs={**other.attrs, "schedule": "backwards"})
    assert set(merged(module.with_function(marked)).functions) == {"conv_0", "conv_1", "run"}


def stored(name: str, values: list[int], dtype: DType = INT32) -> PrimFunc:
    y = Buffer("y", INT8, (6, 4))
    zero = IntImm(0, INT64)
    stores = tuple(
        BufferStore(y, (zero, zero), Cast(INT8, Binary("add", Var("s", INT32), IntImm(v, dtype))))
        for v in values
    )
    params = (Param(Buffer("x", INT8, (6, 4)), "in"), Param(y, "out"))
    return PrimFunc(name, params, Let(Var("s", INT32), i32(0), Seq(stores)), {"op": "o"})


def test_kernels_with_too_many_different_numbers_stay_apart_but_equal_ones_merge() -> None:
    limit = merge_functions.SCALARS_MAX
    many, more = list(range(limit + 1)), [n + 50 for n in range(limit + 1)]
    module = chain([(1, 3), (2, 3), (3, 3)])
    for name, values in (("conv_0", many), ("conv_1", more), ("conv_2", more)):
        module = module.with_function(stored(name, values))
    assert set(merged(module).functions) == {"conv_0", "conv_1", "run"}
    few = module.with_function(stored("conv_0", [5, *more[1:]]))
    assert set(merged(few).functions) == {"conv_0", "run"}


def test_indices_and_loop_bounds_are_never_passed_as_scalars() -> None:
    y = Buffer("y", INT8, (6, 4))
    params = (Param(Buffer("x", INT8, (6, 4)), "in"), Param(y, "out"))

    def at(row: int) -> Stmt:
        index = (IntImm(row, INT32), IntImm(0, INT32))
        return BufferStore(y, index, IntImm(1, INT8))

    module = chain([(1, 3), (2, 3)])
    for n in range(2):
        guarded = If(Binary("lt", i32(n), i32(9)), at(n))
        module = module.with_function(PrimFunc(f"conv_{n}", params, guarded, {"op": "o"}))
    assert set(merged(module).functions) == {"conv_0", "conv_1", "run"}


# ---- parameters instead of linked constants ----------------------------------------------------


def test_hoisting_leaves_no_constant_in_a_kernel_and_names_each_once() -> None:
    module = BY_NAME["merge-constants"](chain([(1, 3), (2, 3), (1, 3)]))
    after = hoist_params.PASS(module)
    for name, func in after.functions.items():
        assert isinstance(func, PrimFunc)
        found = [node.constant for node in walk(func.body) if isinstance(node, AllocateConst)]
        expected = ["conv_0.w", "conv_0.bias", "conv_1.w", "conv_1.bias"]
        assert found == (expected if name == "run" else [])
    assert outputs(after) == outputs(module)


def test_a_hoisted_constant_is_as_aligned_as_its_strictest_user_wants() -> None:
    module = BY_NAME["merge-constants"](BY_NAME["unroll"](chain([(1, 3), (1, 3)])))
    func = module.functions["conv_1"]
    assert isinstance(func, PrimFunc)
    linked = {node.buffer.name: node.buffer for node in hoist_params.linked(func)}

    def strict(node: Node) -> Node | None:
        if isinstance(node, AllocateConst) and node.buffer.name == "w":
            return replace(node, buffer=replace(linked["w"], alignment=4))
        if isinstance(node, BufferLoad) and node.buffer.name == "w":
            return replace(node, buffer=replace(linked["w"], alignment=4))
        return None

    module = module.with_function(rewrite_func(func, strict))
    after = hoist_params.PASS(module)
    main = after.functions["run"]
    assert isinstance(main, PrimFunc)
    alignments = {
        node.constant: node.buffer.alignment
        for node in walk(main.body)
        if isinstance(node, AllocateConst)
    }
    assert alignments == {"conv_0.w": 4, "conv_0.bias": 4}
    verify_module(after, {}, BASE_INTRINSICS)
    assert outputs(after) == outputs(module)
