"""Execution of .tflite files by LiteRT and by TFLM, in the worker process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from firmwright.base.dtypes import Array

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT

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


class LiteRtRuntime:
    """Runs LiteRT with the set of kernels `resolver`."""

    package = "ai-edge-litert"

    def __init__(
        self, model: bytes, *, layers: bool, resolver: str = RESOLVERS["litert"]
    ) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        parsed = _parse_flatbuffer(model, "litert")
        if resolver == RESOLVERS["litert"]:
            check_reference_kernels(parsed)
        self._interpreter = Interpreter(
            model_content=model,
            num_threads=1,
            experimental_op_resolver_type=OpResolverType[resolver],
            experimental_preserve_all_tensors=layers,
        )
        self._interpreter.allocate_tensors()
        graph = parsed.subgraphs[0]
        self.input_names, self.output_names, self.layer_names = tensor_names(
            graph, layers
        )
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
                counts = self._interpreter.get_tensor(self._detections[index])
                count = int(counts.reshape(-1)[0])
                result[:, count:] = 0
        return results


def check_reference_kernels(model: ModelT) -> None:
    """Raise ValueError if a SUM has int8 or int16 inputs.

    LiteRT's reference kernel gives other numbers than their sums, of int16 in each run
    others.
    """
    from ai_edge_litert import schema_py_generated as schema

    short = {schema.TensorType.INT8: "int8", schema.TensorType.INT16: "int16"}
    for graph in model.subgraphs:
        for index, operator in enumerate(graph.operators or ()):
            code = model.operatorCodes[operator.opcodeIndex].builtinCode
            kind = None
            if len(operator.inputs):
                kind = graph.tensors[operator.inputs[0]].type
            if code == schema.BuiltinOperator.SUM and kind in short:
                raise ValueError(
                    "The reference kernel of SUM does not compute sums of "
                    f"{short[kind]} (operator {index})."
                )


def detection_outputs(model: ModelT) -> dict[int, int]:
    """Return, for each list of a detection operator, the index of its number of boxes.

    The operator leaves entries beyond that number as they were before the run.
    """
    counts: dict[int, int] = {}
    for operator in model.subgraphs[0].operators or ():
        code = model.operatorCodes[operator.opcodeIndex].customCode
        if code == b"TFLite_Detection_PostProcess":
            for index in operator.outputs[:3]:
                counts[int(index)] = int(operator.outputs[3])
    return counts


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
        self.input_names, self.output_names, self.layer_names = tensor_names(
            graph, layers
        )
        self._outputs: list[Array] = []

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        """Run one sample; after an early exit, return outputs of the last full run.

        TFLM leaves them undefined. Before the first complete run they represent zero.
        """
        for position, value in enumerate(inputs):
            self._interpreter.set_input(value, position)
        positions = range(len(self.output_names))
        if self._interpreter.invoke() != TFLM_ENDED_EARLY:
            self._outputs = [
                np.array(self._interpreter.get_output(k)) for k in positions
            ]
        elif not self._outputs:
            self._outputs = list(map(self._zero_output, positions))
        layers = (self._interpreter.GetTensor(index, 0) for index in self.layer_names)
        return [*self._outputs, *(layer["tensor_data"] for layer in layers)]

    def _zero_output(self, position: int) -> Array:
        details = self._interpreter.get_output_details(position)
        points = details["quantization_parameters"]["zero_points"]
        is_int8 = details["dtype"] == np.int8 and len(points)
        return np.full(details["shape"], points[0] if is_int8 else 0, details["dtype"])


def tensor_names(
    graph: SubGraphT, layers: bool
) -> tuple[list[str], list[str], dict[int, str]]:
    """Return the names of inputs, of outputs and, with `layers`, of all results.

    Those of all results are by tensor index.
    """
    names: list[str] = []
    for index, tensor in enumerate(graph.tensors):
        name = (tensor.name or b"").decode("utf-8", "replace")
        names.append(name or f"tensor_{index}")  # as the importer
    layer_names: dict[int, str] = {}
    for operator in graph.operators or ():
        for result in map(int, operator.outputs):
            if layers and result >= 0 and graph.tensors[result].type != RESOURCE:
                layer_names[result] = names[result]
    inputs = [names[index] for index in graph.inputs]
    return inputs, [names[index] for index in graph.outputs], layer_names


def swap_entry_subgraph(subgraph: int, model: bytes, numerics: str) -> bytes:
    """Return the model with `subgraph` as its first.

    Raises ImportError if a package is missing.
    """
    import flatbuffers

    parsed = _parse_flatbuffer(model, numerics)
    graphs = parsed.subgraphs
    graphs[0], graphs[subgraph] = graphs[subgraph], graphs[0]
    moved = {0: subgraph, subgraph: 0}
    referring: list[object] = []
    for graph in graphs:
        referring += [operator.builtinOptions for operator in graph.operators or ()]
    referring += parsed.signatureDefs or ()
    for options in filter(None, referring):
        for name, value in vars(options).items():
            if name.endswith(("SubgraphIndex", "subgraphIndex")) or name == "subgraph":
                setattr(options, name, moved.get(value, value))
    builder = flatbuffers.Builder(len(model))
    builder.Finish(parsed.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _parse_flatbuffer(model: bytes, numerics: str) -> ModelT:
    if numerics == "tflm":
        from tflite_micro.python.tflite_micro import runtime

        return runtime.convert_bytearray_to_object(bytearray(model))
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(model, 0))
