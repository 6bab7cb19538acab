"""What micro-kernels compute, in numpy, whatever their instructions are."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import Array


def sums_of_products(
    weights: Array, taps: Array, starts: Array | Sequence[Array | int]
) -> tuple[Array, ...]:
    """Return the sums of a tile, modulo 2^32: those of a channel are adjacent.

    Weights are [tap, channel, lane], taps [tap, pixel, lane]. Each sum has a start.
    """
    wide, columns = np.asarray(weights, np.int64), np.asarray(taps, np.int64)
    products = wide[:, :, None] * columns[:, None]
    totals = products.sum(axis=0).reshape(-1, *products.shape[3:])
    results: list[Array] = []
    for start, total in zip(starts, totals, strict=True):
        exact = np.asarray(start, np.int64) + total
        results.append(exact.astype(np.uint32).astype(np.int32))
    return tuple(results)
