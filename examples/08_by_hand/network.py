"""A network without a framework, compiled and verified: a filter, then a classifier.

    python examples/08_by_hand/network.py [--board mps2-an386]

Firmwright must be importable: `pip install .` in the project's root, or
PYTHONPATH=toolchain.
"""

from __future__ import annotations

import argparse

import numpy as np

import firmwright as fw
from firmwright.graph_builder import GraphBuilder


def network() -> fw.Model:
    """Smooth eight readings over time, y = previous y / 2 + x / 2; classify them."""
    rng = np.random.default_rng(8)
    g = GraphBuilder("smooth")
    x = g.input("x", (1, 8), scale=0.1)
    before = g.state("before", np.zeros((1, 8), np.int8), scale=0.1)
    # Twice the scale for the same numbers is half the value.
    total = g.call("add", x, before, scale=0.2, activation="none")
    smooth = g.call("relu", total, scale=0.1)
    g.set_next_state(before, smooth)

    weights = g.constant(rng.integers(-127, 128, (3, 8)).astype(np.int8), scale=0.01)
    bias = g.constant(rng.integers(-500, 500, 3).astype(np.int32))
    scores = g.call(
        "fully_connected",
        smooth,
        weights,
        bias,
        scale=0.05,
        activation="none",
        keep_dims=False,
    )
    return g.model(
        g.call("softmax", scores, name="y", scale=1 / 256, zero_point=-128, beta=1.0)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="host")
    board = parser.parse_args().board
    found = fw.verify(fw.compile(network(), board=board), samples=20)
    print(
        f"{found.model} on {found.board}: {found.values} values, {found.mismatches} "
        "differ from"
    )
    print(f"what the {found.reference} give.")


if __name__ == "__main__":
    main()
