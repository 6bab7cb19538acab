"""Traversal and rewriting: order, identity of unchanged nodes, substitution."""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, INT32, INT64
from firmwright.ir import tir
from firmwright.ir.tir.builder import Builder, select
from firmwright.ir.tir.traversal import (
    EMPTY_STMT,
    Node,
    callees,
    children,
    declared_buffers,
    free_vars,
    local_names,
    make_sequence,
    rewrite_func,
    rewrite_stmt,
    statements,
    substitute,
    used_buffers,
    used_constants,
    walk,
)


def one_of_each() -> tir.PrimFunc:
    """Return a kernel with every kind of node except PrimFuncCall."""
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT8, (16,), "in"),
        b.buffer_param("y", INT8, (16,), "out"),
    )
    w = b.constant("w", np.arange(16), INT8)
    with b.for_("i", 4) as i:
        j = b.let("j", i * 4)
        row = b.view("row", x, j, (4,))
        acc = b.reg("acc", INT32)
        b.store(acc, [0], b.load_i32(row, [0]))
        with b.if_(i > 1):
            b.store(acc, [0], b.load(acc, [0]) + b.load_i32(w, [j]))
        with b.else_():
            b.evaluate("tick", [b.load(acc, [0]), b.pointer(row, 0, 4)])
        with b.while_(b.load(acc, [0]) > 100):
            b.store(acc, [0], b.load(acc, [0]) - 100)
        b.store(y, [j], select(i > 2, b.load(acc, [0]), 0).cast(INT8))
    return b.build()


def test_a_rule_that_changes_nothing_returns_the_identical_tree() -> None:
    func = one_of_each()
    assert rewrite_stmt(func.body, lambda node: None) is func.body
    assert rewrite_func(func, lambda node: None) is func


def test_the_rule_sees_every_node_after_its_children() -> None:
    func = one_of_each()
    seen: list[Node] = []

    def watch(node: Node) -> None:
        seen.append(node)

    rewrite_stmt(func.body, watch)
    assert sorted(map(repr, seen)) == sorted(map(repr, walk(func.body)))
    done: list[Node] = []
    for node in seen:
        assert all(any(part is other for other in done) for part in children(node))
        done.append(node)


def test_untouched_subtrees_stay_the_same_objects() -> None:
    x, y = tir.Buffer("x", INT32, (4,)), tir.Buffer("y", INT32, (4,))
    left = tir.BufferStore(x, (tir.IntImm(0, INT64),), tir.IntImm(1, INT32))
    right = tir.BufferStore(y, (tir.IntImm(0, INT64),), tir.IntImm(2, INT32))
    body = tir.Seq((left, right))

    def rule(node: Node) -> Node | None:
        return tir.IntImm(7, INT32) if node == tir.IntImm(2, INT32) else None

    new = rewrite_stmt(body, rule)
    assert isinstance(new, tir.Seq)
    assert new.stmts[0] is left
    assert new.stmts[1] == tir.BufferStore(
        y, (tir.IntImm(0, INT64),), tir.IntImm(7, INT32)
    )


def test_expressions_are_rewritten_innermost_first() -> None:
    def rule(node: Node) -> Node | None:
        match node:
            case tir.Binary("add", tir.IntImm(a, dtype), tir.IntImm(b, _)):
                return tir.IntImm(a + b, dtype)
            case _:
                return None

    one = tir.IntImm(1, INT32)
    place = tir.Buffer("x", INT32, (1,))
    total = tir.Binary("add", tir.Binary("add", one, one), one)
    store = tir.BufferStore(place, (tir.IntImm(0, INT64),), total)
    assert rewrite_stmt(store, rule) == replace(store, value=tir.IntImm(3, INT32))


def test_a_dropped_statement_is_removed_from_its_sequence() -> None:
    x = tir.Buffer("x", INT32, (4,))
    stores = [
        tir.BufferStore(x, (tir.IntImm(n, INT64),), tir.IntImm(n, INT32))
        for n in range(3)
    ]

    def rule(node: Node) -> Node | None:
        return EMPTY_STMT if node == stores[1] else None

    assert rewrite_stmt(tir.Seq(tuple(stores)), rule) == tir.Seq((stores[0], stores[2]))


def test_nested_sequences_are_flattened() -> None:
    x = tir.Buffer("x", INT32, (4,))
    store = tir.BufferStore(x, (tir.IntImm(0, INT64),), tir.IntImm(0, INT32))
    assert make_sequence([tir.Seq((store, store)), EMPTY_STMT, store]) == tir.Seq(
        (store, store, store)
    )
    assert make_sequence([EMPTY_STMT, store]) is store
    assert make_sequence([]) == EMPTY_STMT


def test_substitution_replaces_variables_and_buffers() -> None:
    x, y = tir.Buffer("x", INT32, (4,)), tir.Buffer("y", INT32, (4,))
    i = tir.Var("i", INT64)
    store = tir.BufferStore(x, (i,), tir.BufferLoad(x, (i,)))
    three = tir.IntImm(3, INT64)
    assert substitute(store, {"i": three}, {"x": y}) == tir.BufferStore(
        y, (three,), tir.BufferLoad(y, (three,))
    )
    pointer = tir.Allocate(x, tir.PrimFuncCall("f", (tir.AccessPtr(x, i, 1, "r"),)))
    assert substitute(pointer, {}, {"x": y}) == tir.Allocate(
        y, tir.PrimFuncCall("f", (tir.AccessPtr(y, i, 1, "r"),))
    )


def test_walk_yields_nodes_in_execution_order() -> None:
    func = one_of_each()
    loop = next(node for node in walk(func.body) if isinstance(node, tir.For))
    assert list(walk(loop))[:4] == [loop, loop.start, loop.extent, loop.body]


def test_statements_yields_no_expressions() -> None:
    body = one_of_each().body
    among_all = [id(node) for node in walk(body) if isinstance(node, tir.Stmt)]
    assert [id(node) for node in statements(body)] == among_all


def test_free_vars_of_an_expression() -> None:
    index = tir.Binary(
        "add",
        tir.Binary("mul", tir.Var("i", INT32), tir.IntImm(3, INT32)),
        tir.Var("j", INT32),
    )
    assert free_vars(index) == {"i", "j"}


def test_used_buffers_and_constants_are_listed_in_order() -> None:
    func = one_of_each()
    assert list(used_buffers(func.body)) == ["x", "acc", "row", "w", "y"]
    assert set(declared_buffers(func.body)) == {"w", "row", "acc"}
    assert used_constants(func.body) == ["f.w"]
    assert local_names(func) == {"x", "y", "w", "i", "j", "row", "acc"}
    assert callees(
        tir.Seq(
            (
                tir.PrimFuncCall("b", ()),
                tir.PrimFuncCall("a", ()),
                tir.PrimFuncCall("b", ()),
            )
        )
    ) == ["b", "a"]
