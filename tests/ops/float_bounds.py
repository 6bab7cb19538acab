"""Error bounds of float32 results, as stated in docs/reference/numerics.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import OpAttrs
from firmwright.ir.graph.attributes.layers import ActivationAttrs, PoolAttrs
from firmwright.ir.graph.attributes.recurrent import SvdfAttrs
from firmwright.ir.graph.attributes.values import CumulativeAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.registry import op_table

HYBRID = (
    "hybrid_conv2d",
    "hybrid_depthwise_conv2d",
    "hybrid_fully_connected",
    "hybrid_batch_matmul",
)
EPSILON = float(np.finfo(np.float32).eps)


def without_activation(attrs: OpAttrs) -> OpAttrs:
    return (
        replace(attrs, activation="none")
        if isinstance(attrs, ActivationAttrs)
        else attrs
    )


def float_bound(call: OpCall, arrays: Sequence[Array], expected: Array) -> Array:
    """Return the largest allowed error of each element of a float32 result."""
    terms = {
        "conv2d": lambda: call.input(1).elements // call.output.shape[-1],
        "depthwise_conv2d": lambda: call.input(1).shape[1] * call.input(1).shape[2],
        "fully_connected": lambda: call.input(1).shape[1],
        "variable_fully_connected": lambda: call.input(1).shape[1],
        "transpose_conv": lambda: call.input(1).elements // call.output.shape[-1],
        **dict.fromkeys(HYBRID, lambda: 2),  # sums are exact; scales and bias round
        "average_pool2d": lambda: int(np.prod(call.attributes(PoolAttrs).size)),
        "mean": lambda: call.input(0).elements // call.output.elements,
        "softmax": lambda: call.input(0).shape[-1],
        "sum": lambda: call.input(0).elements // call.output.elements,
        "gelu": lambda: 2,  # the definition cancels where x is negative
        "resize_bilinear": lambda: 4,
        "cumulative": lambda: call.input(0).shape[
            call.attributes(CumulativeAttrs).axis
        ],
        "reduce_prod": lambda: call.input(0).elements // call.output.elements,
        "batch_matmul": lambda: max(call.input(0).shape[-2:]),
        "l2_normalization": lambda: call.input(0).shape[-1],
        "l2_pool2d": lambda: int(np.prod(call.attributes(PoolAttrs).size)),
        "log_softmax": lambda: call.input(0).shape[-1],
        "scatter_nd": lambda: call.input(1).elements,
        "hybrid_lstm": lambda: 4 * (call.input(0).shape[2] + call.input(13).shape[1]),
        "lstm": lambda: 4 * (call.input(0).shape[2] + call.input(13).shape[1]),
        "detections": lambda: 32,
        "detections_by_class": lambda: 32,
        "local_response_normalization": lambda: 8 * call.input(0).shape[-1],
        "svdf": lambda: (
            call.input(0).shape[1]
            + call.input(2).shape[1] * call.attributes(SvdfAttrs).rank
        ),
        "add_n": lambda: len(call.inputs),
    }
    if call.op in (
        "rfft",
        "irfft",
        "stft",
    ):  # as many roundings as steps, of sums of all samples
        return 8 * EPSILON * np.full(expected.shape, np.abs(arrays[0]).sum())
    if call.op not in terms:
        return 4 * np.spacing(np.abs(expected).astype(np.float32))
    positive = replace(
        call,
        attrs=without_activation(call.attrs),
        constants=tuple(
            None
            if c is None
            else Constant.from_array(c.name, np.abs(c.array()), c.dtype)
            for c in call.constants
        ),
    )
    if call.op in ("softmax", "local_response_normalization"):
        sums = expected
    elif call.op.startswith("detections"):  # in units of the image
        sums = np.ones_like(expected)
    else:
        results = op_table()[call.op].reference(
            positive, [np.abs(array) for array in arrays]
        )
        sums = next(result for result in results if result.shape == expected.shape)
    return 2 * (terms[call.op]() + 2) * EPSILON * np.abs(sums).astype(np.float64)
