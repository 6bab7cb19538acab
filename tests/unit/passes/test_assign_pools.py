"""Tests of pool assignment: every use has its pool; invalid requests are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.base.errors import UsageError
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoBinding, IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.passes.graph.assign_pools import assign_tensor_pools
from firmwright.pipeline import Options, compile_model

TEXT = """firmwright ir 2
module @net
const @w = i8[16] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
graph @main(%image: i8[16] quant(0.5, 0)) -> (%score) {
  %hidden: i8[16] quant(0.5, 0) = relu(%image)
  %weights = const @w: i8[16] quant(0.5, 0)
  %score: i8[16] quant(0.5, 0) = add(%hidden, %weights) {activation="none"}
}
"""
POOLS = (PoolInfo("sram", 4096), PoolInfo("dtcm", 1024))


def net() -> IRModule:
    return replace(parse_module(TEXT), pools=(*POOLS, PoolInfo("flash", access="ro")))


def test_every_use_of_an_assigned_tensor_has_its_pool() -> None:
    pinned = assign_tensor_pools(net(), [("hidden", "dtcm"), ("score", "sram")])
    entry = pinned.entry
    assert isinstance(entry, Function)
    text = print_module(pinned)
    assert '%hidden: i8[16] quant(0.5, 0) on(scope="dtcm") = relu(%image)' in text
    assert entry.body[1].inputs[0] == entry.body[0].outputs[0]
    assert entry.results == entry.body[1].outputs
    assert parse_module(text) == pinned


@pytest.mark.parametrize("board", ["host", "mps3-an547"])
def test_an_assigned_tensor_is_planned_into_its_pool(board: str) -> None:
    pool = "dtcm" if board == "host" else "isram"
    pools = POOLS if board == "host" else ()
    pins = (("hidden", pool), ("score", pool))
    done = compile_model(
        parse_module(TEXT), Options(board=board, pools=pools, pool_assignments=pins)
    )
    assert done.module.plan is not None
    placed = {name: place.pool for name, place in done.module.plan.placements.items()}
    assert placed == {"image": "sram", "hidden": pool, "score": pool}
    again = compile_model(parse_module(print_module(done.imported)), done.options)
    assert again.tree == done.tree, "the module's text carries the pins"


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        (
            ("hiden", "dtcm"),
            r"'hiden' cannot .*: no planned tensor has this name. Try: hidden\.",
        ),
        (
            ("hidden", "dtmc"),
            r"to pool 'dtmc': no writable pool has this name\. Try: dtcm\.",
        ),
        (("hidden", "flash"), "no writable pool has this name"),
        (("weights", "dtcm"), "it is a constant, which is part of the program"),
    ],
)
def test_an_invalid_assignment_suggests_the_nearest_name(
    pin: tuple[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        assign_tensor_pools(net(), [pin])


def test_a_tensor_has_one_pool() -> None:
    with pytest.raises(UsageError, match="it is already assigned to sram"):
        assign_tensor_pools(net(), [("hidden", "sram"), ("hidden", "dtcm")])


def test_caller_buffers_cannot_be_assigned() -> None:
    module = replace(net(), io=IoBinding("caller"))
    with pytest.raises(UsageError, match="no planned tensor has this name"):
        assign_tensor_pools(module, [("image", "dtcm")])


def test_a_lowered_module_cannot_be_assigned() -> None:
    done = compile_model(parse_module(TEXT), Options())
    with pytest.raises(UsageError, match="tensors of a lowered module"):
        assign_tensor_pools(done.module, [("hidden", "sram")])
