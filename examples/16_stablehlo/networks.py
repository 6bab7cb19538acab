"""Networks of JAX, exported as StableHLO, compiled and compared with JAX.

    python examples/16_stablehlo/networks.py [--board mps2-an386]

This needs the packages firmwright and jax.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from stablehlo import read_stablehlo

import firmwright as fw

RNG = np.random.default_rng(16)
FILTERS = RNG.normal(size=(3, 3, 1, 8)).astype(np.float32)
WEIGHTS = RNG.integers(-127, 128, (128, 10)).astype(np.int8)
HIDDEN = RNG.normal(size=(8, 16)).astype(np.float32)
SCORES = RNG.normal(size=(16, 4)).astype(np.float32)
INTEGERS = RNG.integers(-127, 128, (3, 3, 2, 4)).astype(np.int8)
IMAGES = ("NHWC", "HWIO", "NHWC")


def classes(x: jax.Array) -> jax.Array:
    """Two layers and a softmax."""
    return jax.nn.softmax(jax.nn.relu(x @ HIDDEN + 0.5) @ SCORES)


def image(x: jax.Array) -> jax.Array:
    """A convolution and a pool of floats, then a layer of int8."""
    y = lax.conv_general_dilated(x, FILTERS, (1, 1), "SAME", dimension_numbers=IMAGES)
    window = (1, 2, 2, 1)
    y = lax.reduce_window(jax.nn.relu(y), -jnp.inf, lax.max, window, window, "VALID")
    whole = jnp.clip(jnp.round(y.reshape(1, -1) / 0.05), -128, 127).astype(jnp.int8)
    sums = jnp.matmul(whole, WEIGHTS, preferred_element_type=jnp.int32)
    return sums.astype(jnp.float32) * np.float32(0.0005)


def integers(x: jax.Array) -> jax.Array:
    """A convolution of int8 with stride, its positive sums added up."""
    y = lax.conv_general_dilated(
        x,
        INTEGERS,
        (2, 2),
        "SAME",
        dimension_numbers=IMAGES,
        preferred_element_type=jnp.int32,
    )
    return jnp.maximum(y, 0).sum(axis=(1, 2))


NETWORKS = (
    (classes, (1, 8), "float32"),
    (image, (1, 8, 8, 1), "float32"),
    (integers, (1, 8, 8, 2), "int8"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="host")
    board = parser.parse_args().board
    for network, shape, dtype in NETWORKS:
        exported = export.export(jax.jit(network))(jax.ShapeDtypeStruct(shape, dtype))
        model = read_stablehlo(exported.mlir_module(), network.__name__)
        scale = 40 if dtype == "int8" else 1
        inputs = (scale * RNG.normal(size=(20, *shape))).astype(dtype)
        with fw.session(fw.compile(model, board=board)) as session:
            found = np.stack([session.run(x) for x in inputs])
        wanted = np.stack([np.asarray(exported.call(x)) for x in inputs])
        error = np.abs(found.astype(np.float64) - wanted).max()
        print(
            f"{network.__name__} on {board}: {wanted.size} values, "
            f"{np.count_nonzero(found != wanted)} differ, by at most {error:.1e}"
        )


if __name__ == "__main__":
    main()
