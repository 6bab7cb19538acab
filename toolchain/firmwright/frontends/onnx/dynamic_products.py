"""Recognition of matrix products with dynamic quantization, as ONNX Runtime's tools write them.

DynamicQuantizeLinear, MatMulInteger with constant int8 weights, Cast and Mul become one node
com.microsoft:DynamicQuantizeMatMul without a bias or a zero point of weights.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.frontends.onnx.protobuf import Message, onnx_package


def fuse_dynamic_products(
    nodes: Sequence[Message], constants: Mapping[str, Array]
) -> tuple[Message, ...]:
    """Return the nodes with recognized products; their integer parts remain, perhaps unused."""
    makers = {name: node for node in nodes for name in node.output}
    return tuple(_fused(node, makers, constants) or node for node in nodes)


def _fused(
    node: Message, makers: Mapping[str, Message], constants: Mapping[str, Array]
) -> Message | None:
    if node.op_type != "Mul":
        return None
    for total, scale in permutations(node.input):
        cast, product = makers.get(total), None
        if cast is not None and cast.op_type == "Cast":
            product = makers.get(cast.input[0])
        scaling = makers.get(scale)
        if product is None or product.op_type != "MatMulInteger" or scaling is None:
            continue
        quantized = makers.get(product.input[0])
        if quantized is None or quantized.op_type != "DynamicQuantizeLinear":
            continue
        own = [name for name in scaling.input if name != quantized.output[1]]
        is_same = scaling.op_type == "Mul" and len(own) == 1 and own[0] in constants
        if is_same and _is_plain(product, quantized, constants):
            return onnx_package().helper.make_node(
                "DynamicQuantizeMatMul", [quantized.input[0], product.input[1], own[0]],
                list(node.output), domain="com.microsoft",
            )  # fmt: skip
    return None


def _is_plain(product: Message, quantized: Message, constants: Mapping[str, Array]) -> bool:
    """Return whether the product uses the zero point of its input and int8 weights without one."""
    weights = constants.get(product.input[1])
    zeros = constants.get(product.input[3]) if len(product.input) > 3 else np.zeros(1)
    return (
        list(product.input[2:3]) == [quantized.output[2]]
        and weights is not None
        and weights.dtype == np.int8
        and weights.ndim == 2
        and zeros is not None
        and not zeros.any()
    )
