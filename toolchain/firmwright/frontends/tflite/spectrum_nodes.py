"""Nodes of floats that replace operators on spectra: products and magnitudes."""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.frontends.tflite.decoded_model import NO_TENSOR, RawNode
from firmwright.frontends.tflite.graph_rewriter import GraphRewriter
from firmwright.ir.core import Attrs

_PRODUCT: Attrs = {
    "fused_activation_function": "NONE",
    "weights_format": "DEFAULT",
    "keep_num_dims": True,
    "asymmetric_quantize_inputs": False,
    "quantized_bias_type": "float32",
}


def add_product(
    rewriter: GraphRewriter, node: RawNode, x: int, role: str, matrix: Array
) -> None:
    """Append the product of rows of `x` with float32 [results, elements of a row].

    The results are those of `node`; `role` begins the name of the matrix.
    """
    operands = (x, rewriter.constant(role, matrix), NO_TENSOR)
    rewriter.emit(node, "FULLY_CONNECTED", operands, **_PRODUCT)


def add_magnitudes(
    rewriter: GraphRewriter, node: RawNode, numbers: int, *, is_squared: bool
) -> None:
    """Append the magnitudes of complex numbers [..., 2], or their squares."""
    shape = rewriter.tensors[numbers].shape
    squares = rewriter.tensor("squares", "float32", shape)
    rewriter.emit(replace(node, outputs=(squares,)), "SQUARE", (numbers,))
    last = rewriter.constant("axis", np.array([len(shape) - 1], np.int32))
    if is_squared:
        rewriter.emit(node, "SUM", (squares, last), keep_dims=False)
        return
    power = rewriter.tensor("power", "float32", shape[:-1])
    source = replace(node, outputs=(power,))
    rewriter.emit(source, "SUM", (squares, last), keep_dims=False)
    rewriter.emit(node, "SQRT", (power,))
