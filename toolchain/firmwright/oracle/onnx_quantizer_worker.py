"""Worker process of ONNX Runtime's quantization.

Input: FOLDER/request.json (the `QuantizeOptions` and the input names), the file
`model`, and inputs.npz. Output: FOLDER/quantized.onnx, prepared.onnx (the folded float
model) and answer.json: version and `nodes`, or the `error`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.json_input import Json, JsonObject, as_text, as_texts
from firmwright.oracle.reference_worker import RequestError, read_request, write_answer

if TYPE_CHECKING:
    from onnxruntime.quantization import CalibrationDataReader

    import onnx

OLDEST_OPSET = 13
"""The first opset whose DequantizeLinear has per-channel scales."""
SOFTMAX_SCALE = 1 / 256
"""The only scale that the integer softmax supports, for values in 0..1."""
OPERATORS = (
    "Add",
    "AveragePool",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "DepthToSpace",
    "Elu",
    "Expand",
    "Flatten",
    "Gather",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "MatMul",
    "MaxPool",
    "Mish",
    "Mul",
    "Pad",
    "ReduceMean",
    "Relu",
    "Reshape",
    "Resize",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Softplus",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Sub",
    "Tanh",
    "Transpose",
    "Unsqueeze",
)
"""Operators with integer kernels; others remain float."""


def quantize(folder: Path) -> dict[str, Json]:
    request, samples = read_request(folder)
    try:
        import onnxruntime.quantization as tools

        import onnx
    except ImportError as error:
        raise RequestError("missing", error.name or "onnxruntime") from error
    # A warning advises to prepare the model, which happens here.
    logging.disable(logging.WARNING)
    model = onnx.ModelProto.FromString((folder / "model").read_bytes())
    _check(model)
    prepared = folder / "prepared.onnx"
    activations = as_text(request["activations"])
    try:
        nodes = _prepare(model, prepared, _first(samples))
        if not any(node.op_type in OPERATORS for node in nodes):
            kinds = dict.fromkeys(node.op_type for node in nodes)
            raise RequestError("nothing", ", ".join(kinds))
        excluded = _excluded_node_names(nodes, as_texts(request["exclude"]))
        tools.quantize_static(
            prepared,
            folder / "quantized.onnx",
            _make_reader(samples),
            op_types_to_quantize=list(OPERATORS),
            per_channel=bool(request["per_channel"]),
            activation_type=tools.QuantType[activations],
            weight_type=tools.QuantType.QInt8,
            nodes_to_exclude=excluded,
            calibrate_method=tools.CalibrationMethod[as_text(request["method"])],
            extra_options=_options(nodes, activations),
        )
    except RequestError:
        raise
    except Exception as error:  # the bindings raise exceptions without a common base
        raise RequestError("refused", f"{type(error).__name__}: {error}") from error
    computed: set[str] = set()
    for node in nodes:
        computed.update(node.output)
    rows: list[JsonObject] = []
    for node in nodes:
        rows.append(
            {
                "result": node.output[0],
                "op": node.op_type,
                "name": node.name,
                "inputs": list(node.input),
                "reason": _reason(node, excluded, computed),
            }
        )
    return {"version": importlib.metadata.version("onnxruntime"), "nodes": rows}


def _first(samples: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array[0] for name, array in samples.items()}


def _prepare(
    model: onnx.ModelProto, path: Path, sample: Mapping[str, Array]
) -> list[onnx.NodeProto]:
    """Write the folded model, with types and biases as the tools need them."""
    import onnxruntime

    import onnx

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    data = model.SerializeToString()
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    typed = onnx.shape_inference.infer_shapes(onnx.load(path))
    _state_types(typed, sample)
    _flatten_biases(typed)
    for node in typed.graph.node:
        # Operators are excluded by name; an empty name would exclude all unnamed ones.
        node.name = node.name or node.output[0]
    onnx.save(typed, path)
    return list(typed.graph.node)


def _state_types(model: onnx.ModelProto, sample: Mapping[str, Array]) -> None:
    """Add the types of results that onnx cannot infer, as of operators of ai.onnx.ml.

    The tools do not quantize a result without a type.
    """
    import onnxruntime

    import onnx

    graph = model.graph
    known = {item.name for item in (*graph.value_info, *graph.output)}
    names: list[str] = []
    for node in graph.node:
        names += [name for name in node.output if name and name not in known]
    if not names:
        return
    observed = onnx.ModelProto()
    observed.CopyFrom(model)
    observed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(
        observed.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for name, value in zip(names, session.run(names, dict(sample)), strict=True):
        if isinstance(value, np.ndarray):
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            shape = list(value.shape)
            typed = onnx.helper.make_tensor_value_info(name, kind, shape)
            graph.value_info.append(typed)


def _flatten_biases(model: onnx.ModelProto) -> None:
    """Give biases of Gemm one axis, as the tools need; skl2onnx writes 1xN."""
    readers: dict[str, set[str]] = {}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            role = "bias" if node.op_type == "Gemm" and position == 2 else ""
            readers.setdefault(name, set()).add(role)
    for item in model.graph.initializer:
        is_row = len(item.dims) == 2 and item.dims[0] == 1
        if is_row and readers.get(item.name) == {"bias"}:
            del item.dims[0]


def _check(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        op = node.op_type
        if op in ("QuantizeLinear", "DequantizeLinear") or "QLinear" in op:
            raise RequestError("quantized", f"{op} {node.name}".strip())
    opsets = [item.version for item in model.opset_import if not item.domain]
    opset = max(opsets, default=1)
    if opset < OLDEST_OPSET:
        what = f"opset {opset} cannot be converted to {OLDEST_OPSET}"
        raise RequestError("refused", what)


def _make_reader(samples: Mapping[str, Array]) -> CalibrationDataReader:
    import onnxruntime.quantization as tools

    def read_feeds() -> Iterator[dict[str, Array]]:
        for row in zip(*samples.values(), strict=True):
            feed: dict[str, Array] = {}
            for name, array in zip(samples, row, strict=True):
                feed[name] = np.array(array, order="C")
            yield feed

    feeds = read_feeds()

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]  # the package has no types
        def get_next(self) -> dict[str, Array] | None:
            return next(feeds, None)

    return Reader()


def _excluded_node_names(nodes: list[onnx.NodeProto], names: list[str]) -> list[str]:
    node_names: dict[str, str] = {}
    for node in nodes:
        for name in filter(None, (node.name, *node.output)):
            node_names[name] = node.name
    for name in names:
        if name not in node_names:
            raise RequestError("exclude", f"{name!r}")
    return [node_names[name] for name in names]


def _reason(node: onnx.NodeProto, excluded: list[str], computed: set[str]) -> str:
    """Return why the tools do not quantize a node; "" if they do."""
    if node.name in excluded:
        return "it is excluded"
    if node.op_type not in OPERATORS:
        return f"{node.op_type} is not among the operators that are quantized"
    if node.op_type == "MatMul" and computed.issuperset(node.input):
        return "both factors are computed; integer kernels need constant weights"
    return ""


def _options(nodes: list[onnx.NodeProto], activations: str) -> dict[str, object]:
    point = -128 if activations == "QInt8" else 0
    fixed = {
        "scale": np.array(SOFTMAX_SCALE, np.float32),
        "zero_point": np.array(point, np.int8 if point else np.uint8),
    }
    softmax = [node.output[0] for node in nodes if node.op_type == "Softmax"]
    return {
        # A product of two activations has no integer kernel.
        "MatMulConstBOnly": True,
        "TensorQuantOverrides": {name: [dict(fixed)] for name in softmax},
    }


if __name__ == "__main__":
    sys.exit(write_answer(Path(sys.argv[1]), quantize))
