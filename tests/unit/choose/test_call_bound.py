"""A call that alone exceeds the memory is refused before any program is searched."""

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.choose.kernel_selection import KernelSelector
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.graph_builder import GraphBuilder

BOARD = "microbit"  # 16 KB of RAM
SHAPE = (1, 75, 40, 4)


def _transpose() -> Model:
    """Return a transposition, whose input and output cannot overlap."""
    g = GraphBuilder("turned")
    x = g.input("x", SHAPE, scale=0.05)
    return g.model(g.call("transpose", x, perm=(0, 2, 1, 3), scale=0.05))


def _relu() -> Model:
    """Return a function of each element, which is computed in place."""
    g = GraphBuilder("in_place")
    x = g.input("x", SHAPE, scale=0.05)
    return g.model(g.call("relu", x, scale=0.05))


def _must_not_search(selector: KernelSelector) -> None:
    raise AssertionError("programs are searched")


def test_a_call_larger_than_the_memory_is_refused_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KernelSelector, "select", _must_not_search)
    with pytest.raises(DoesNotFitError) as caught:
        compile_for(_transpose(), board=BOARD)
    assert caught.value.lowest_bytes == 23_552
    assert "needs 23,552 bytes" in str(caught.value)
    assert [size for _, size in caught.value.peak] == [12_000, 12_000]


def test_a_call_in_place_fits() -> None:
    assert compile_for(_relu(), board=BOARD).summary.workspace_bytes < 16_000


def test_the_refusal_is_that_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DoesNotFitError) as early:
        compile_for(_transpose(), board=BOARD)
    target = "firmwright.pipeline.pass_list.check_calls_fit"
    monkeypatch.setattr(target, lambda *others: None)
    with pytest.raises(DoesNotFitError) as late:
        compile_for(_transpose(), board=BOARD)
    assert str(early.value) == str(late.value)
