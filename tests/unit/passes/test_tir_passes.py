"""Tests of TIR passes: they preserve semantics, unchanged modules and determinism."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, INT32, INT64, DType
from firmwright.ir import tir
from firmwright.ir.core import Constant, Span
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.tir.builder import (
    Builder,
    call_intrinsic,
    logical_and,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.interpreter import Interpreter, interpret
from firmwright.ir.tir.traversal import Node, local_names, rewrite_func, walk
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.passes import BY_NAME
from firmwright.passes.tir import dce, dedupe_functions, externalize_constants
from firmwright.passes.tir.narrow_index import narrow_indices
from firmwright.passes.tir.unroll import unroll

# ---- single functions ----------------------------------------------------------------


def test_unrolled_copies_have_unique_names() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (12,), "in"),
        b.buffer_param("y", INT32, (3,), "out"),
    )
    with b.for_("r", 3, kind="unrolled") as r:
        row = b.view("row", x, r * 4, (4,))
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with b.for_("k", 4) as k:
            at = b.let("at", k + 0)
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


def test_indices_become_32_bit_and_wide_values_stay() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT64, (8,), "in"),
        b.buffer_param("y", INT64, (8,), "out"),
    )
    with b.for_("i", 8) as i:
        b.store(y, [i], b.load(x, [i]) * 3)
    func = narrow_indices(b.build())
    variables = {node for node in walk(func.body) if isinstance(node, tir.Var)}
    assert variables == {tir.Var("i", INT32)}
    out = np.zeros(8, np.int64)
    interpret(func, {"x": np.full(8, 2**40), "y": out}, {})
    assert out.tolist() == [3 * 2**40] * 8


# ---- whole modules -------------------------------------------------------------------


def kernel(
    name: str, seed: int, zero_point: int, channels: int = 6, row: bool = True
) -> Builder:
    """Return a requantized pointwise convolution, unrolled, with a packed column."""
    rng = np.random.default_rng(seed)
    b = Builder(name, Span("m.tflite", 0, seed, name))
    x = b.buffer_param("x", INT8, (6, 4), "in")
    y = b.buffer_param("y", INT8, (6, channels), "out")
    w = b.constant("w", rng.integers(-127, 128, (channels, 4)), INT8)
    bias = b.constant("bias", rng.integers(-999, 999, channels), INT32)
    with b.for_("block", 3) as block:
        column = b.allocate("column", INT32, (2, 4))
        with b.for_("p", 2) as p, b.for_("k", 4) as k:
            at = b.let("at", block * 2 + p)
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
                scaled = call_intrinsic("requantize_twice", arguments, INT32)
                clamped = minimum(maximum(scaled, -128), 127)
                b.store(y, [block * 2 + q, oc], select(oc >= 0, clamped, 0).cast(INT8))
    return b


def chain(specs: list[tuple[int, int]]) -> IRModule:
    """Return a module whose main runs kernels of one shape, each (seed, zero point)."""
    functions: dict[str, tir.PrimFunc] = {}
    constants: dict[str, Constant] = {}
    buffers = [
        tir.Buffer(f"t{n}", INT8, (6, 4), alignment=4) for n in range(len(specs) + 1)
    ]
    calls: list[tir.Stmt] = []
    zero = tir.IntImm(0, INT64)
    for n, (seed, zero_point) in enumerate(specs):
        b = kernel(f"conv_{n}", seed, zero_point, channels=4)
        func = b.build(op="conv2d", comment="conv2d 6x4 -> 6x4")
        functions[func.name] = func
        constants.update(b.constants)
        args = (
            tir.AccessPtr(buffers[n], zero, 24, "r"),
            tir.AccessPtr(buffers[n + 1], zero, 24, "w"),
        )
        calls.append(tir.PrimFuncCall(func.name, args, func.span, n))
    body: tir.Stmt = tir.Seq(tuple(calls))
    for buffer in reversed(buffers[1:-1]):
        body = tir.Allocate(buffer, body, "activation")
    params = (tir.Param(buffers[0], "in"), tir.Param(buffers[-1], "out"))
    functions["run"] = tir.PrimFunc("run", params, body, {"aot_main": True})
    return IRModule("chain", functions, constants, entry_name="run")


def outputs(module: IRModule) -> list[int]:
    functions = {
        n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)
    }
    main = functions["run"]
    out = np.zeros((6, 4), np.int8)
    x = np.random.default_rng(9).integers(-128, 128, (6, 4)).astype(np.int8)
    names = [param.name for param in main.params]
    args = dict(zip(names, (x, out), strict=True))
    Interpreter(functions, BASE_INTRINSICS, module.constants).run("run", args)
    return [int(value) for value in out.reshape(-1)]


ALL = [
    *(
        BY_NAME[name]
        for name in PASS_NAMES[PASS_NAMES.index("unroll") :]
        if name in BY_NAME
    ),
    Pass("final-dce", dce.run),
]


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


def test_an_idle_pass_returns_the_identical_module() -> None:
    module = chain([(1, 3), (2, 3)])
    for step in ALL:
        module = step(module)
        assert step(module) is module, step.name


def test_passes_share_unchanged_nodes() -> None:
    module = chain([(1, 3), (2, 3)])
    tidy = BY_NAME["simplify"](BY_NAME["unroll"](module))
    touched = tidy.with_function(kernel("extra", 5, 0, channels=4).build())
    again = BY_NAME["simplify"](touched)
    assert again.functions["conv_0"] is tidy.functions["conv_0"]
    assert again.functions["extra"] is not touched.functions["extra"]


def test_passes_are_deterministic() -> None:
    first, second = (list(stages(chain([(1, 3), (2, 4), (3, 5)]))) for _ in range(2))
    assert first == second


# ---- merging kernels -----------------------------------------------------------------


def merged(module: IRModule) -> IRModule:
    return dedupe_functions.PASS(BY_NAME["merge-constants"](module))


def test_kernels_that_differ_in_constants_are_merged() -> None:
    module = chain([(1, 3), (2, 3), (3, 3)])
    after = merged(module)
    assert set(after.functions) == {"conv_0", "run"}
    func = after.functions["conv_0"]
    assert isinstance(func, tir.PrimFunc)
    assert [(p.name, p.role) for p in func.params[2:]] == [
        ("w", "const"),
        ("bias", "const"),
    ]
    assert func.attrs["comment"] == "conv2d 6x4 -> 6x4"
    assert outputs(after) == outputs(module)


def test_differing_immediates_become_scalar_parameters() -> None:
    module = chain([(1, 3), (1, 4)])
    after = merged(module)
    func = after.functions["conv_0"]
    assert isinstance(func, tir.PrimFunc)
    assert [(p.name, p.role) for p in func.params[2:]] == [("scalar_0", "scalar")]
    assert any(isinstance(node, tir.AllocateConst) for node in walk(func.body))
    main = after.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    calls = [node for node in walk(main.body) if isinstance(node, tir.PrimFuncCall)]
    assert [node.args[-1] for node in calls] == [
        tir.IntImm(3, INT32),
        tir.IntImm(4, INT32),
    ]
    assert [node.op for node in calls] == [0, 1]
    assert outputs(after) == outputs(module)


def test_kernels_of_different_schedules_or_operators_are_not_merged() -> None:
    module = chain([(1, 3), (2, 3)])
    other = module.functions["conv_1"]
    assert isinstance(other, tir.PrimFunc)
    marked = replace(other, attrs={**other.attrs, "schedule": "backwards"})
    assert set(merged(module.with_function(marked)).functions) == {
        "conv_0",
        "conv_1",
        "run",
    }


def stored(name: str, values: list[int], dtype: DType = INT32) -> tir.PrimFunc:
    y = tir.Buffer("y", INT8, (6, 4))
    zero = tir.IntImm(0, INT64)
    stores = tuple(
        tir.BufferStore(
            y,
            (zero, zero),
            tir.Cast(
                INT8, tir.Binary("add", tir.Var("s", INT32), tir.IntImm(v, dtype))
            ),
        )
        for v in values
    )
    params = (tir.Param(tir.Buffer("x", INT8, (6, 4)), "in"), tir.Param(y, "out"))
    return tir.PrimFunc(
        name,
        params,
        tir.Let(tir.Var("s", INT32), tir.IntImm(0, INT32), tir.Seq(stores)),
        {"op": "o"},
    )


def test_kernels_with_too_many_differing_numbers_are_not_merged() -> None:
    limit = dedupe_functions.SCALARS_MAX
    many, more = list(range(limit + 1)), [n + 50 for n in range(limit + 1)]
    module = chain([(1, 3), (2, 3), (3, 3)])
    for name, values in (("conv_0", many), ("conv_1", more), ("conv_2", more)):
        module = module.with_function(stored(name, values))
    assert set(merged(module).functions) == {"conv_0", "conv_1", "run"}
    few = module.with_function(stored("conv_0", [5, *more[1:]]))
    assert set(merged(few).functions) == {"conv_0", "run"}


def test_indices_and_loop_bounds_are_never_passed_as_scalars() -> None:
    y = tir.Buffer("y", INT8, (6, 4))
    params = (tir.Param(tir.Buffer("x", INT8, (6, 4)), "in"), tir.Param(y, "out"))

    def at(row: int) -> tir.Stmt:
        index = (tir.IntImm(row, INT32), tir.IntImm(0, INT32))
        return tir.BufferStore(y, index, tir.IntImm(1, INT8))

    module = chain([(1, 3), (2, 3)])
    for n in range(2):
        guarded = tir.If(
            tir.Binary("lt", tir.IntImm(n, INT32), tir.IntImm(9, INT32)), at(n)
        )
        module = module.with_function(
            tir.PrimFunc(f"conv_{n}", params, guarded, {"op": "o"})
        )
    assert set(merged(module).functions) == {"conv_0", "conv_1", "run"}


# ---- parameters instead of linked constants ------------------------------------------


def test_externalized_constants_are_declared_once_in_the_main() -> None:
    module = BY_NAME["merge-constants"](chain([(1, 3), (2, 3), (1, 3)]))
    after = externalize_constants.PASS(module)
    for name, func in after.functions.items():
        assert isinstance(func, tir.PrimFunc)
        found = [
            node.constant
            for node in walk(func.body)
            if isinstance(node, tir.AllocateConst)
        ]
        expected = ["conv_0.w", "conv_0.bias", "conv_1.w", "conv_1.bias"]
        assert found == (expected if name == "run" else [])
    assert outputs(after) == outputs(module)


def test_an_externalized_constant_has_the_strictest_alignment() -> None:
    module = BY_NAME["merge-constants"](BY_NAME["unroll"](chain([(1, 3), (1, 3)])))
    func = module.functions["conv_1"]
    assert isinstance(func, tir.PrimFunc)
    linked = {
        node.buffer.name: node.buffer
        for node in externalize_constants.linked_constants(func)
    }

    def strict(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst) and node.buffer.name == "w":
            return replace(node, buffer=replace(linked["w"], alignment=4))
        if isinstance(node, tir.BufferLoad) and node.buffer.name == "w":
            return replace(node, buffer=replace(linked["w"], alignment=4))
        return None

    module = module.with_function(rewrite_func(func, strict))
    after = externalize_constants.PASS(module)
    main = after.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    alignments = {
        node.constant: node.buffer.alignment
        for node in walk(main.body)
        if isinstance(node, tir.AllocateConst)
    }
    assert alignments == {"conv_0.w": 4, "conv_0.bias": 4}
    verify_module(after, {}, BASE_INTRINSICS)
    assert outputs(after) == outputs(module)
