"""Worker process of one reference runtime: `python -m firmwright.oracle.reference_worker FOLDER`.

Input: FOLDER/request.json (numerics, layers, subgraph, input names), the file `model`, and
inputs.npz (`i0`, `i1`, ...: one array per input, samples on the leading axis). For PyTorch,
integers.npz of the same form may hold results of quantize operators to use near ties.

Output: FOLDER/answer.json (version, names of outputs and layers, or an `error`) and outputs.npz
(`o<k>` the outputs by position, `t<k>` the tensors of subgraph 0 by index).

Samples share the model's state. Sources of the semantics: LiteRT's BUILTIN_REF resolver (reference
kernels only), TFLM's interpreter, ONNX Runtime without graph optimizations, PyTorch's own kernels
(`pytorch_program`).
"""

import importlib.metadata
import json
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from firmwright.oracle.pytorch_program import Array, PyTorchProgram

RESOURCE = 13  # the schema's element type of a variable's handle, which has no value
TFLM_ARENA_BYTES = 64 << 20  # the system allocates only pages that the model touches
TFLM_ENDED_EARLY = 15
"""Status of a run that an operator ended (kTfLiteAbort)."""


RESOLVERS = {
    "litert": "BUILTIN_REF",
    "litert-optimized": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "litert-xnnpack": "AUTO",
}
"""LiteRT's sets of kernels by their name in a request."""


class RequestError(Exception):
    """Raised if a request cannot be fulfilled; `kind` selects the error that the parent raises."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class ReferenceRuntime(Protocol):
    """The common interface of the runtimes."""

    package: str
    input_names: list[str]
    output_names: list[str]
    layer_names: dict[int, str]

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        """Run one sample; return the outputs, then the layers in the order of `layer_names`."""


class LiteRtRuntime:
    """Runs LiteRT with the set of kernels `resolver`."""

    package = "ai-edge-litert"

    def __init__(self, model: bytes, *, layers: bool, resolver: str = RESOLVERS["litert"]) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self._interpreter = Interpreter(
            model_content=model,
            num_threads=1,
            experimental_op_resolver_type=OpResolverType[resolver],
            experimental_preserve_all_tensors=layers,
        )
        self._interpreter.allocate_tensors()
        parsed = _parse_flatbuffer(model, "litert")
        graph = parsed.subgraphs[0]
        self.input_names, self.output_names, self.layer_names = tensor_names(graph, layers)
        self._sources = [int(index) for index in graph.inputs]
        self._results = [*(int(index) for index in graph.outputs), *self.layer_names]
        self._detections = detection_outputs(parsed)

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        for index, value in zip(self._sources, inputs, strict=True):
            self._interpreter.set_tensor(index, value)
        self._interpreter.invoke()
        results = list(map(self._interpreter.get_tensor, self._results))
        for index, result in zip(self._results, results, strict=True):
            if index in self._detections:
                count = self._interpreter.get_tensor(self._detections[index]).reshape(-1)[0]
                result[:, int(count) :] = 0
        return results


def detection_outputs(model: Any) -> dict[int, int]:
    """Return the index of the number of boxes for each list that a detection operator writes.

    The operator leaves entries beyond that number as they were before the run.
    """
    return {
        int(index): int(operator.outputs[3])
        for operator in model.subgraphs[0].operators or ()
        if model.operatorCodes[operator.opcodeIndex].customCode == b"TFLite_Detection_PostProcess"
        for index in operator.outputs[:3]
    }


class TflmRuntime:
    """Runs the TFLM interpreter of the Python package."""

    package = "tflite-micro"

    def __init__(self, model: bytes, *, layers: bool) -> None:
        from tflite_micro.python.tflite_micro import runtime

        config = runtime.InterpreterConfig
        mode = config.kPreserveAllTensors if layers else config.kAllocationRecording
        self._interpreter = runtime.Interpreter.from_bytes(
            model, arena_size=TFLM_ARENA_BYTES, intrepreter_config=mode
        )
        graph = _parse_flatbuffer(model, "tflm").subgraphs[0]
        self.input_names, self.output_names, self.layer_names = tensor_names(graph, layers)
        self._outputs: list[Array] = []

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        """Run one sample; after an early exit, return the outputs of the last complete run.

        TFLM leaves them undefined. Before the first complete run they represent zero.
        """
        for position, value in enumerate(inputs):
            self._interpreter.set_input(value, position)
        positions = range(len(self.output_names))
        if self._interpreter.invoke() != TFLM_ENDED_EARLY:
            self._outputs = [np.array(self._interpreter.get_output(k)) for k in positions]
        elif not self._outputs:
            self._outputs = list(map(self._zero_output, positions))
        layers = (self._interpreter.GetTensor(index, 0) for index in self.layer_names)
        return [*self._outputs, *(layer["tensor_data"] for layer in layers)]

    def _zero_output(self, position: int) -> Array:
        details = self._interpreter.get_output_details(position)
        points = details["quantization_parameters"]["zero_points"]
        is_int8 = details["dtype"] == np.int8 and len(points)
        return np.full(details["shape"], points[0] if is_int8 else 0, details["dtype"])


class OnnxRuntimeSession:
    """Runs ONNX Runtime on the CPU: quantized models on integers, others without optimizations.

    Integer kernels need graph optimizations and, for int8 activations on x86, a permission.
    `LAYOUT_OPTIMIZERS` would make the order of a float sum depend on other nodes and outputs.
    """

    package = "onnxruntime"

    def __init__(self, model: bytes, *, layers: bool) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_DISABLE_ALL
        if is_quantized(model):
            options.graph_optimization_level = levels.ORT_ENABLE_ALL
            options.add_session_config_entry("session.qdqisint8allowed", "1")
            model = with_scalar_scales(model)
        model = with_unsigned_weights(model)
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if layers:
            model = expose_all_results(model)
        try:
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"],
                disabled_optimizers=LAYOUT_OPTIMIZERS,
            )  # fmt: skip
        except Exception as error:  # its own exceptions have no common base
            raise RuntimeError(str(error)) from error
        names = self._names = [item.name for item in self._session.get_outputs()]
        metadata = self._session.get_modelmeta().custom_metadata_map
        self._updates = {
            key.removeprefix(STATE_KEY): following
            for key, following in metadata.items()
            if key.startswith(STATE_KEY)
        }
        inputs = {item.name: item for item in self._session.get_inputs()}
        self.input_names = [name for name in inputs if name not in self._updates]
        # A state without an entry starts with the initializer of its name.
        self._state = {
            name: np.zeros(item.shape, item.type[len("tensor(") : -1].replace("float", "float32"))
            for name, item in inputs.items()
            if name in self._updates
        }
        count = len(names) - int(metadata.get(ADDED_OUTPUTS, 0))
        following = self._updates.values()
        self.output_names = [name for name in names[:count] if name not in following]
        self.layer_names = dict(enumerate(names[count:]))

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        feeds = dict(zip(self.input_names, inputs, strict=True))
        try:
            results = self._session.run(None, feeds | self._state)
        except Exception as error:  # its own exceptions have no common base
            raise RuntimeError(str(error)) from error
        named = dict(zip(self._names, map(np.asarray, results), strict=True))
        self._state = {name: named[following] for name, following in self._updates.items()}
        return [named[name] for name in (*self.output_names, *self.layer_names.values())]


LAYOUT_OPTIMIZERS = ["NhwcTransformer", "TransposeOptimizer"]
STATE_KEY = "firmwright.state."
"""Metadata that declare state, as in frontends/onnx/reader.py."""
ADDED_OUTPUTS = "firmwright_added_outputs"


QUANTIZED_RESULTS = ("DequantizeLinear", "QLinear", "QuantizeLinear")


def is_quantized(model: bytes) -> bool:
    return b"QuantizeLinear" in model or b"QLinear" in model


def with_scalar_scales(model: bytes) -> bytes:
    """Make scales and zero points of one element scalars; only these have integer kernels."""
    import onnx

    proto = onnx.ModelProto.FromString(model)
    kinds = ("QuantizeLinear", "DequantizeLinear")
    nodes = (node for node in proto.graph.node if node.op_type in kinds)
    names = {name for node in nodes for name in node.input[1:]}
    for tensor in proto.graph.initializer:
        if tensor.name in names and list(tensor.dims) == [1]:
            del tensor.dims[:]
    return bytes(proto.SerializeToString())


def with_unsigned_weights(model: bytes) -> bytes:
    """Store int8 weights of uint8 activations as uint8: the same products, exact on every CPU.

    On x86 without VNNI, ONNX Runtime saturates sums of two products of uint8 and int8 at 16 bits.
    """
    import onnx

    proto = onnx.ModelProto.FromString(model)
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    makers = {name: node for node in proto.graph.node for name in node.output}
    kinds = {name: tensor.data_type for name, tensor in tensors.items()}
    for node in proto.graph.node:
        made = [makers[name] for name in node.input[:2] if name in makers]
        is_real = [maker.op_type for maker in made] == ["DequantizeLinear"] * 2
        if node.op_type in UNSIGNED_PRODUCTS:
            product, (activations, weight, point) = node, UNSIGNED_PRODUCTS[node.op_type]
            source = "".join(node.input[activations : activations + 1])
        elif is_real and node.op_type in ("Conv", "Gemm", "MatMul"):
            product, source, weight, point = made[1], "".join(made[0].input[2:]), 0, 2
        else:
            continue
        origin = node.op_type + (makers[source].op_type if source in makers else "")
        is_unsigned = kinds.get(source) == onnx.TensorProto.UINT8 or "Dynamic" in origin
        if not is_unsigned or kinds.get(product.input[weight]) != onnx.TensorProto.INT8:
            continue
        product.input.extend([""] * (point + 1 - len(product.input)))
        shape = tensors[product.input[1]].dims if product is not node else ()
        for index, default in ((weight, 0), (point, np.zeros(shape, np.int8))):
            tensor = tensors.get(product.input[index])
            values = np.asarray(onnx.numpy_helper.to_array(tensor) if tensor else default)
            name = product.input[index] = f"{product.output[0]}_unsigned_{index}"
            unsigned = (values.astype(np.int16) + 128).astype(np.uint8)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(unsigned, name))
    return bytes(proto.SerializeToString())


UNSIGNED_PRODUCTS = {
    "ConvInteger": (2, 1, 3), "MatMulInteger": (2, 1, 3), "MatMulIntegerToFloat": (4, 1, 5),
    "DynamicQuantizeMatMul": (0, 1, 3), "QAttention": (6, 1, 7), "QGemm": (2, 3, 5),
    "QLinearConv": (2, 3, 5), "QLinearMatMul": (2, 3, 5),
}  # fmt: skip
"""Inputs of operators: zero point of the activations; weights, zero point."""


def expose_all_results(model: bytes) -> bytes:
    """Add all results to the outputs; of a quantized model those that integer kernels keep."""
    import onnx

    proto, keeps_integers = onnx.ModelProto.FromString(model), is_quantized(model)
    outputs = {item.name for item in proto.graph.output}
    nodes = [
        node
        for node in proto.graph.node
        if not keeps_integers or node.op_type.startswith(QUANTIZED_RESULTS)
    ]
    added = [n for node in nodes for n in node.output if n and n not in outputs]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in added)
    entry = proto.metadata_props.add()
    entry.key, entry.value = ADDED_OUTPUTS, str(len(added))
    return bytes(proto.SerializeToString())


def tensor_names(graph: Any, layers: bool) -> tuple[list[str], list[str], dict[int, str]]:
    """Return input names, output names and, with `layers`, all result names by tensor index."""
    names = [
        (tensor.name or b"").decode("utf-8", "replace") or f"tensor_{index}"  # as the importer
        for index, tensor in enumerate(graph.tensors)
    ]
    results = (int(index) for operator in graph.operators or () for index in operator.outputs)
    layer_indices = (k for k in results if layers and k >= 0 and graph.tensors[k].type != RESOURCE)
    inputs, outputs = ([names[index] for index in part] for part in (graph.inputs, graph.outputs))
    return inputs, outputs, {index: names[index] for index in layer_indices}


def open_runtime(
    numerics: str, model: bytes, *, layers: bool, integers: Mapping[str, Array] | None = None
) -> ReferenceRuntime:
    others = {"tflm": TflmRuntime, "onnxruntime": OnnxRuntimeSession, "pytorch": PyTorchProgram}
    kind: Any = others.get(numerics, LiteRtRuntime)
    more: dict[str, Any] = {"integers": integers} if numerics == "pytorch" else {}
    if kind is LiteRtRuntime:
        more = {"resolver": RESOLVERS[numerics]}
    try:
        runtime: ReferenceRuntime = kind(model, layers=layers, **more)
    except ImportError as error:
        raise RequestError("missing", kind.package) from error
    return runtime


def swap_entry_subgraph(subgraph: int, model: bytes, numerics: str) -> bytes:
    package = TflmRuntime.package if numerics == "tflm" else LiteRtRuntime.package
    try:
        import flatbuffers

        parsed = _parse_flatbuffer(model, numerics)
    except ImportError as error:
        raise RequestError("missing", package) from error
    graphs = parsed.subgraphs
    graphs[0], graphs[subgraph] = graphs[subgraph], graphs[0]
    moved = {0: subgraph, subgraph: 0}
    referring = [operator.builtinOptions for graph in graphs for operator in graph.operators or ()]
    referring += parsed.signatureDefs or ()
    for options in filter(None, referring):
        for name, value in vars(options).items():
            if name.endswith(("SubgraphIndex", "subgraphIndex")) or name == "subgraph":
                setattr(options, name, moved.get(value, value))
    builder = flatbuffers.Builder(len(model))
    builder.Finish(parsed.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _parse_flatbuffer(model: bytes, numerics: str) -> Any:
    if numerics == "tflm":
        from tflite_micro.python.tflite_micro import runtime

        return runtime.convert_bytearray_to_object(bytearray(model))
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(model, 0))


def order_inputs(
    runtime: ReferenceRuntime, names: Sequence[str], values: Sequence[Array]
) -> list[Array]:
    """Return the inputs in the model's order; raise RequestError if the names differ."""
    if sorted(names) != sorted(runtime.input_names):
        raise RequestError("inputs", f"{list(names)}, the model has {list(runtime.input_names)}")
    by_name = dict(zip(names, values, strict=True))
    return [by_name[name] for name in runtime.input_names]


def read_request(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return request.json, and the inputs by name with samples on the leading axis."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    return request, read_arrays(folder, request, "inputs")


def read_arrays(folder: Path, request: Mapping[str, Any], kind: str) -> dict[str, Array]:
    """Return the arrays of `inputs` or `integers` by name."""
    with np.load(folder / f"{kind}.npz") as archive:
        return {name: archive[f"i{k}"] for k, name in enumerate(request[kind])}


def run_request(folder: Path) -> dict[str, Any]:
    request, arrays = read_request(folder)
    model = (folder / "model").read_bytes()
    if request.get("subgraph"):
        model = swap_entry_subgraph(request["subgraph"], model, request["numerics"])
    integers = read_arrays(folder, request, "integers") if request.get("integers") else None
    runtime = open_runtime(request["numerics"], model, layers=request["layers"], integers=integers)
    inputs = order_inputs(runtime, list(arrays), list(arrays.values()))
    keys = [f"o{position}" for position in range(len(runtime.output_names))]
    keys += [f"t{tensor}" for tensor in runtime.layer_names]
    recorded: list[list[Array]] = [[] for _ in keys]
    for index in range(request["samples"]):
        results = runtime.run([np.array(value[index], order="C") for value in inputs])
        for arrays_of_key, array in zip(recorded, results, strict=True):
            arrays_of_key.append(np.array(array))
    stacked: dict[str, Any] = dict(zip(keys, map(np.stack, recorded), strict=True))
    np.savez(folder / "outputs.npz", **stacked)
    return {
        "version": importlib.metadata.version(runtime.package),
        "outputs": list(runtime.output_names),
        "layers": {str(index): name for index, name in runtime.layer_names.items()},
        "rounding": runtime.rounding.counts if isinstance(runtime, PyTorchProgram) else (0, 0),
    }


def write_answer(folder: Path, work: Callable[[Path], dict[str, Any]]) -> int:
    """Run `work` and write its answer or an `error` to answer.json; return the exit status 0."""
    try:
        answer = work(folder)
    except RequestError as error:
        answer = {"error": error.kind, "what": str(error)}
    except (
        ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, struct.error,
        TypeError, ValueError,
    ) as error:  # fmt: skip
        # The runtimes and their schema readers raise these for models that they refuse.
        answer = {"error": "refused", "what": str(error) or type(error).__name__}
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(write_answer(Path(sys.argv[1]), run_request))
