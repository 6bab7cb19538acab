"""Evaluation of constant nodes by ONNX's reference, limited by inferred sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import RAISED_BY, scaled_limit
from firmwright.frontends.onnx.node_context import ConstantValue, OnnxValue
from firmwright.frontends.onnx.node_schemas import inference_model, model_of_node
from firmwright.frontends.onnx.protobuf import Message, SyntheticNode, onnx_package
from firmwright.frontends.onnx.qdq import QdqOperands
from firmwright.frontends.onnx.shape_inference import infer_shapes

FOLDED_ELEMENTS_MAX: Final = 1 << 22
"""Larger results are left to the importer of the operator."""
CONSTANT_ELEMENTS_MAX: Final = 1 << 28
"""The elements of all results of a model together."""
_RANDOM: Final = (
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
"""Results differ from run to run; Dropout's importer accepts it outside of training."""
_NEVER_FOLDED: Final = (
    "DequantizeLinear",
    "If",
    "Loop",
    "Scan",
    "SequenceMap",
    *_RANDOM,
)


@dataclass(slots=True)
class ConstantFolder:
    """Folds the nodes of one model; `elements` counts those of the results so far."""

    elements: int = 0

    def fold(
        self, node: Message, opset: int, operands: QdqOperands
    ) -> list[OnnxValue] | None:
        """Return the results, or None to import the node.

        Raise NotSupportedError above the limit.
        """
        inputs: dict[str, Array] = {}
        for name, operand in zip(node.input, operands, strict=True):
            if isinstance(operand, ConstantValue):
                inputs[name] = operand.array
            elif operand is not None:
                return None
        results = self._evaluate_within_limits(node, opset, inputs)
        if results is None:
            return None
        return list(map(ConstantValue, results, filter(None, node.output)))

    def _evaluate_within_limits(
        self, node: Message, opset: int, inputs: Mapping[str, Array]
    ) -> list[Array] | None:
        if isinstance(node, SyntheticNode) or node.op_type in _NEVER_FOLDED:
            return None
        if node.op_type == "Unique" and _is_unsorted(node):
            return None
        if node.domain not in ("", "ai.onnx"):
            return None
        # Operators on text include regular expressions, which may take unbounded time.
        if any(x.dtype == object for x in inputs.values()):
            return None
        sizes = _result_elements(node, opset, inputs)
        limit = scaled_limit(CONSTANT_ELEMENTS_MAX)
        if sum(sizes) + self.elements > limit:
            raise NotSupportedError(
                f"its constant result has {sum(sizes):,} elements; with those before "
                f"it, the model exceeds the limit of {limit:,} ({RAISED_BY})"
            )
        if max(sizes, default=0) > FOLDED_ELEMENTS_MAX:
            return None
        results = _evaluate(node, opset, inputs)
        if results is None:
            return None
        counts = [array.size for array in results]
        if max(counts, default=0) > FOLDED_ELEMENTS_MAX:
            return None
        self.elements += sum(counts)
        return results


def _is_unsorted(node: Message) -> bool:
    """Return whether a Unique keeps the order, in which ONNX's reference errs.

    It takes the elements along the first axis, whatever the axis.
    """
    return any(item.name == "sorted" and not item.i for item in node.attribute)


def _result_elements(
    node: Message, opset: int, inputs: Mapping[str, Array]
) -> list[int]:
    """Return the element counts of the results that shape inference determines."""
    onnx = onnx_package()
    try:
        model = inference_model(node, opset, inputs)
        outputs = infer_shapes(model).graph.output
    except (
        RuntimeError,
        ValueError,
        TypeError,
        KeyError,
        onnx.shape_inference.InferenceError,
    ):
        return []
    counts = []
    for output in outputs:
        shape = output.type.tensor_type.shape
        counts.append(prod(dim.dim_value for dim in shape.dim))
    return counts


def _evaluate(
    node: Message, opset: int, inputs: Mapping[str, Array]
) -> list[Array] | None:
    """Evaluate a node with ONNX's reference; return None if unsupported."""
    onnx = onnx_package()
    untyped = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in inputs]
    try:
        model = model_of_node(node, opset, untyped)
        evaluator = onnx.reference.ReferenceEvaluator(model)
        with np.errstate(all="ignore"):
            results = evaluator.run(None, dict(inputs))
    # The reference raises these for unsupported operators and inputs.
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ):
        return None
    arrays: list[Array] = []
    for item in results:
        if not isinstance(item, np.ndarray | np.generic):
            return None
        arrays.append(np.asarray(item))
    return arrays
