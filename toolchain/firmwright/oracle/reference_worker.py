"""The worker of one reference runtime, which is started with a folder as argument.

Command: `python -m firmwright.oracle.reference_worker FOLDER`.

Input: FOLDER/request.json (numerics, layers, subgraph, input names), the file `model`,
and inputs.npz (`i0`, `i1`, ...: one array per input, samples on the leading axis). For
PyTorch, integers.npz of the same form may hold results of quantize operators to use
near ties.

Storage types without arrays of numpy are stored as the types that compute them.

Output: FOLDER/answer.json (version, names of outputs and layers, or an `error`) and
outputs.npz (`o<k>` the outputs by position, `t<k>` the tensors of subgraph 0 by index).

Samples share the model's state. Sources of the semantics: LiteRT's BUILTIN_REF resolver
(reference kernels only), TFLM's interpreter, ONNX Runtime, PyTorch's own kernels
(`pytorch_program`).

ONNX Runtime's outputs are those of the model as it is in the file, with two exceptions:
one that it refuses because of its pools (`with_scalar_pools`), and products on a CPU
whose kernels saturate (`with_unsigned_weights`). Casts replace
inputs and outputs of which its Python package has no arrays (`with_array_types`).
Optimizations that change what the model computes are disabled. Layers are those of the
graph that ONNX Runtime has optimized.
"""

from __future__ import annotations

import importlib.metadata
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from firmwright.base.array_files import write_npz
from firmwright.base.dtypes import Array
from firmwright.base.json_input import (
    Json,
    JsonObject,
    as_integer,
    as_object,
    as_text,
    as_texts,
    parse_json,
)
from firmwright.oracle.onnx_rewriting import (
    with_array_types,
    with_scalar_pools,
    with_unsigned_weights,
)
from firmwright.oracle.pytorch_program import PyTorchProgram
from firmwright.oracle.tflite_interpreters import (
    RESOLVERS,
    LiteRtRuntime,
    TflmRuntime,
    swap_entry_subgraph,
)

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class RequestError(Exception):
    """An unfulfilled request; `kind` selects the error that the parent raises."""

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
        """Run one sample; return the outputs, then layers as in `layer_names`."""


LAYOUT_OPTIMIZERS = ["NhwcTransformer", "TransposeOptimizer"]
"""They would make the order of a float sum depend on other nodes and outputs."""
INEXACT_OPTIMIZERS = ["DoubleQDQPairsRemover"]
"""They would turn two quantizations in a row into one of a third scale."""
FLOAT_ACTIVATIONS = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""Keeps float activations of a MatMulNBits, a product with 8-bit weights.

Otherwise, ONNX Runtime rounds them to 8 bits.
"""
STATE_KEY = "firmwright.state."
"""Metadata that declare state, as in frontends/onnx/reader.py."""
QUANTIZED_RESULTS = ("DequantizeLinear", "QLinear", "QuantizeLinear")
"""Operators, or beginnings of names, whose results stay in an optimized graph."""


class OnnxRuntimeSession:
    """Runs ONNX Runtime on the CPU: quantized models on integers, others as they are.

    The others run without optimizations.

    Integer kernels need graph optimizations and, for int8 activations on x86, a
    permission.
    """

    package = "onnxruntime"

    def __init__(self, model: bytes, *, layers: bool) -> None:
        model = with_array_types(model)
        self._session, optimized = _open_as_it_is(model)
        self._layers = None
        if layers:
            exposed, self.layer_names = expose_results(model, optimized)
            self._layers, _ = _open(exposed, is_optimized=False)
        else:
            self.layer_names = {}
        metadata = self._session.get_modelmeta().custom_metadata_map
        self._updates: dict[str, str] = {}
        for key, following in metadata.items():
            if key.startswith(STATE_KEY):
                self._updates[key.removeprefix(STATE_KEY)] = following
        self.input_names: list[str] = []
        # A state without an entry starts with the initializer of its name.
        self._state: dict[str, Array] = {}
        for item in self._session.get_inputs():
            if item.name in self._updates:
                kind = item.type[len("tensor(") : -1]
                dtype = "float32" if kind == "float" else kind
                self._state[item.name] = np.zeros(item.shape, dtype)
            else:
                self.input_names.append(item.name)
        self.output_names: list[str] = []
        for item in self._session.get_outputs():
            if item.name not in self._updates.values():
                self.output_names.append(item.name)

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        feeds = dict(zip(self.input_names, inputs, strict=True)) | self._state
        named = _run(self._session, feeds)
        layers = self._layer_results(feeds, named)
        for name, following in self._updates.items():
            self._state[name] = named[following]
        return [*(named[name] for name in self.output_names), *layers]

    def _layer_results(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> list[Array]:
        """Return the layers; RuntimeError if requesting them has changed an output."""
        if self._layers is None:
            return []
        results = _run(self._layers, feeds)
        for name, value in outputs.items():
            if value.tobytes() != results[name].tobytes():
                what = f"output {name} differs if all results are requested"
                raise RuntimeError(what)
        return [results[name] for name in self.layer_names.values()]


def _run(session: InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    try:
        results = session.run(None, dict(feeds))
    except Exception as error:  # its own exceptions have no common base
        raise RuntimeError(str(error)) from error
    names = (item.name for item in session.get_outputs())
    return dict(zip(names, map(np.asarray, results), strict=True))


def _open_as_it_is(model: bytes) -> tuple[InferenceSession, bytes]:
    """Return a session of the model, and its graph, optimized if it is quantized.

    Operators of integers are also in models that are not, such as QGemm and
    MatMulInteger.
    """
    is_optimized = is_quantized(model)
    try:
        opened = _open(model, is_optimized=is_optimized)
    except RuntimeError:
        other = with_scalar_pools(model)
        if other == model:
            raise
        model = other
        opened = _open(other, is_optimized=is_optimized)
    exact = with_unsigned_weights(model) if products_saturate() else model
    if exact == model:
        return opened
    replaced = _open(exact, is_optimized=is_optimized)
    # The same operators compute the same products, without saturation.
    is_proved = _operators(replaced[1]) == _operators(opened[1])
    return replaced if is_proved else opened


def _open(model: bytes, *, is_optimized: bool) -> tuple[InferenceSession, bytes]:
    """Return a session and the model that it runs; RuntimeError if it is refused."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory(prefix="firmwright-onnxruntime-") as folder:
        path = Path(folder) / "optimized.onnx"
        if is_optimized:
            options.graph_optimization_level = levels.ORT_ENABLE_ALL
            options.add_session_config_entry("session.qdqisint8allowed", "1")
            for key, value in FLOAT_ACTIVATIONS.items():
                options.add_session_config_entry(key, value)
            options.optimized_model_filepath = str(path)
        try:
            session = onnxruntime.InferenceSession(
                model,
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=LAYOUT_OPTIMIZERS + INEXACT_OPTIMIZERS,
            )
        except Exception as error:  # its own exceptions have no common base
            raise RuntimeError(str(error)) from error
        return session, path.read_bytes() if is_optimized else model


def _operators(model: bytes) -> list[str]:
    import onnx

    return [node.op_type for node in onnx.ModelProto.FromString(model).graph.node]


def is_quantized(model: bytes) -> bool:
    return b"QuantizeLinear" in model or b"QLinear" in model


def expose_results(model: bytes, optimized: bytes) -> tuple[bytes, dict[int, str]]:
    """Return the optimized model with more outputs, and names of results of `model`.

    Of a quantized model, these are results of QUANTIZED_RESULTS that the optimized one
    computes, too, or that are dequantized from them. It is not optimized again, so that
    the operators stay as they are.
    """
    import onnx

    proto = onnx.ModelProto.FromString(model)
    keeps_integers = is_quantized(model)
    exposed = onnx.ModelProto.FromString(optimized)
    outputs = {item.name for item in exposed.graph.output}
    computed: set[str] = set()
    for node in exposed.graph.node:
        computed.update(filter(None, node.output))
    known = set(computed)
    for item in (*exposed.graph.input, *exposed.graph.initializer):
        known.add(item.name)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    names: list[str] = []
    for node in proto.graph.node:
        if keeps_integers and not node.op_type.startswith(QUANTIZED_RESULTS):
            continue
        is_fused = computed.isdisjoint(node.output)
        if is_fused and node.op_type == "DequantizeLinear":
            scaling = node.input[1:]
            has_scaling = {*scaling} <= {*known, *constants}
            if node.input[0] in computed and has_scaling:
                lost = [name for name in scaling if name not in known]
                exposed.graph.initializer.extend(constants[name] for name in lost)
                exposed.graph.node.append(node)
                known.update(lost)
                computed.update(node.output)
        for name in node.output:
            if name in computed and name not in outputs:
                names.append(name)
    make_output = onnx.helper.make_empty_tensor_value_info
    exposed.graph.output.extend(map(make_output, names))
    return bytes(exposed.SerializeToString()), dict(enumerate(names))


def products_saturate() -> bool:
    """Return whether this CPU saturates sums of two products of uint8 and int8.

    They saturate at 16 bits.

    This is so on x86 without VNNI.
    """
    import onnx

    helper, kinds = onnx.helper, onnx.TensorProto
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    weights = onnx.numpy_helper.from_array(np.full((64, 8), 127, np.int8), "b")
    a = helper.make_tensor_value_info("a", kinds.UINT8, [4, 64])
    y = helper.make_tensor_value_info("y", kinds.INT32, [4, 8])
    graph = helper.make_graph([node], "product", [a], [y], [weights])
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session, _ = _open(model.SerializeToString(), is_optimized=False)
    products = _run(session, {"a": np.full((4, 64), 255, np.uint8)})["y"]
    return bool((products != 64 * 255 * 127).any())


def open_runtime(
    numerics: str,
    model: bytes,
    *,
    layers: bool,
    integers: Mapping[str, Array] | None = None,
) -> ReferenceRuntime:
    """Return the runtime of a name; RequestError if its package is missing."""
    try:
        match numerics:
            case "tflm":
                return TflmRuntime(model, layers=layers)
            case "onnxruntime":
                return OnnxRuntimeSession(model, layers=layers)
            case "pytorch":
                return PyTorchProgram(model, layers=layers, integers=integers)
            case _:
                return LiteRtRuntime(model, layers=layers, resolver=RESOLVERS[numerics])
    except ImportError as error:
        raise RequestError("missing", _package(numerics)) from error


def _package(numerics: str) -> str:
    """Return the name of the Python package of a runtime."""
    packages = {
        "tflm": TflmRuntime.package,
        "onnxruntime": OnnxRuntimeSession.package,
        "pytorch": PyTorchProgram.package,
    }
    return packages.get(numerics, LiteRtRuntime.package)


def order_inputs(
    runtime: ReferenceRuntime, names: Sequence[str], values: Sequence[Array]
) -> list[Array]:
    """Return the inputs in the model's order; RequestError if the names differ."""
    if sorted(names) != sorted(runtime.input_names):
        what = f"{list(names)}, the model has {list(runtime.input_names)}"
        raise RequestError("inputs", what)
    by_name = dict(zip(names, values, strict=True))
    return [by_name[name] for name in runtime.input_names]


def read_request(folder: Path) -> tuple[JsonObject, dict[str, Array]]:
    """Return request.json, and the inputs by name with samples on the leading axis."""
    text = (folder / "request.json").read_text(encoding="utf-8")
    request = as_object(parse_json(text))
    return request, read_arrays(folder, request, "inputs")


def read_arrays(folder: Path, request: JsonObject, kind: str) -> dict[str, Array]:
    """Return the arrays of `inputs` or `integers` by name."""
    arrays: dict[str, Array] = {}
    with np.load(folder / f"{kind}.npz") as archive:
        for k, name in enumerate(as_texts(request[kind])):
            arrays[name] = archive[f"i{k}"]
    return arrays


def run_request(folder: Path) -> dict[str, Json]:
    request, arrays = read_request(folder)
    model = (folder / "model").read_bytes()
    numerics = as_text(request["numerics"])
    subgraph = as_integer(request["subgraph"])
    if subgraph:
        try:
            model = swap_entry_subgraph(subgraph, model, numerics)
        except ImportError as error:
            raise RequestError("missing", _package(numerics)) from error
    integers: dict[str, Array] | None = None
    if request.get("integers"):
        integers = read_arrays(folder, request, "integers")
    has_layers = request["layers"] is True
    runtime = open_runtime(numerics, model, layers=has_layers, integers=integers)
    inputs = order_inputs(runtime, list(arrays), list(arrays.values()))
    keys = [f"o{position}" for position in range(len(runtime.output_names))]
    keys += [f"t{tensor}" for tensor in runtime.layer_names]
    recorded: list[list[Array]] = [[] for _ in keys]
    for index in range(as_integer(request["samples"])):
        results = runtime.run([np.array(value[index], order="C") for value in inputs])
        for arrays_of_key, array in zip(recorded, results, strict=True):
            arrays_of_key.append(np.array(array))
    stored: dict[str, Array] = {}
    for key, arrays_of_key in zip(keys, recorded, strict=True):
        if len({array.shape for array in arrays_of_key}) == 1:
            stored[key] = np.stack(arrays_of_key)
            continue
        # The length depends on the data.
        for index, array in enumerate(arrays_of_key):
            stored[f"{key}.{index}"] = array
    write_npz(folder / "outputs.npz", stored)
    rounding = (0, 0)
    if isinstance(runtime, PyTorchProgram):
        rounding = runtime.rounding.counts
    return {
        "version": importlib.metadata.version(runtime.package),
        "outputs": list(runtime.output_names),
        "layers": {str(index): name for index, name in runtime.layer_names.items()},
        "rounding": rounding,
    }


def write_answer(folder: Path, work: Callable[[Path], dict[str, Json]]) -> int:
    """Write the answer of `work` or an `error` to answer.json; return status 0."""
    try:
        answer = work(folder)
    except RequestError as error:
        answer = {"error": error.kind, "what": str(error)}
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,
        struct.error,
        TypeError,
        ValueError,
    ) as error:
        # The runtimes and their schema readers raise these for models that they refuse.
        answer = {"error": "refused", "what": str(error) or type(error).__name__}
    text = json.dumps(answer)
    (folder / "answer.json").write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(write_answer(Path(sys.argv[1]), run_request))
