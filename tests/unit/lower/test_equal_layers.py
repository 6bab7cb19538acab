"""Layers that differ in weights and scales only: their candidates are built once."""

from collections.abc import Sequence

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.graph_builder import GraphBuilder
from firmwright.lower.equal_layers import EqualLayers
from firmwright.lower.lowering import Lowering

BOARD = "mps2-an386"
SCALES = (0.002, 0.0021, 0.0022, 0.0023)


def _chain(scales: Sequence[float]) -> Model:
    """Return convolutions of one shape, one for each scale of its weights."""
    rng = np.random.default_rng(1)
    g = GraphBuilder("chain")
    x = g.input("x", (1, 6, 6, 8), scale=0.05, zero_point=3)
    for scale in scales:
        weights = rng.integers(-127, 128, (8, 3, 3, 8)).astype(np.int8)
        x = g.call(
            "conv2d",
            x,
            g.constant(weights, scale=scale),
            None,
            scale=0.05,
            zero_point=3,
            stride=(1, 1),
            dilation=(1, 1),
            padding=(1, 1, 1, 1),
            activation="relu",
        )
    return g.model(x)


def _sources(model: Model) -> dict[str, bytes]:
    return dict(compile_for(model, board=BOARD).tree.files)


@pytest.fixture(name="built")
def _built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the kernels that are built, in order."""
    names: list[str] = []
    build = Lowering._built_once

    def counted(self: Lowering, name: str, *others: object) -> object:
        names.append(name)
        return build(self, name, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Lowering, "_built_once", counted)
    return names


def test_a_later_layer_builds_its_fastest_and_its_chosen_kernel(
    built: list[str],
) -> None:
    compile_for(_chain(SCALES), board=BOARD)
    assert built.count("conv2d_0") > 5
    for later in ("conv2d_1", "conv2d_2", "conv2d_3"):
        assert built.count(later) == 2


def test_the_program_is_that_of_layers_which_are_built_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = _sources(_chain(SCALES))
    monkeypatch.setattr(EqualLayers, "offered", lambda self, *others: others[-1]())
    assert _sources(_chain(SCALES)) == shared


def test_a_layer_with_other_code_has_candidates_of_its_own(built: list[str]) -> None:
    # A multiplier above one is another form of requantization.
    model = _chain((0.002, 1.7, 0.002, 1.7))
    compile_for(model, board=BOARD)
    assert built.count("conv2d_1") > 5
    assert built.count("conv2d_2") == built.count("conv2d_3") - 1 == 2


def test_kernels_with_other_code_than_their_stand_ins_are_selected_again(
    monkeypatch: pytest.MonkeyPatch, built: list[str]
) -> None:
    shared = _sources(_chain(SCALES))
    built.clear()
    monkeypatch.setattr(EqualLayers, "with_own_kernels", lambda *others: None)
    assert _sources(_chain(SCALES)) == shared
    assert built.count("conv2d_3") > 5
