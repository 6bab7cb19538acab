"""Runs a .tflite file with tensor lists by kernels that are not ours.

TensorFlow runs the operators of lists, LiteRT's reference kernels each of the others,
and Python the loops. No runtime has all of them: LiteRT has no lists, and TensorFlow's
package has no Flex delegate.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from flatbuffers import flexbuffers
from numpy.typing import NDArray

Value = Any
"""An array, or a list as a tensor of TensorFlow."""
_FLEX = "Flex"


@dataclass
class TensorListRuntime:
    """The model of a file, with an interpreter for each operator that has run."""

    data: bytes
    interpreters: dict[tuple[int, int], Interpreter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = schema.ModelT.InitFromPackedBuf(bytearray(self.data), 0)

    def run(self, *inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return the outputs of the main graph."""
        return tuple(map(np.asarray, self._run_graph(0, inputs)))

    def _run_graph(self, number: int, inputs: Sequence[Value]) -> list[Value]:
        graph = self.model.subgraphs[number]
        values: dict[int, Value] = dict(zip(graph.inputs, inputs, strict=True))
        for index in self._constants(number, range(len(graph.tensors))):
            values[index] = self._constant(graph.tensors[index])
        for place, operator in enumerate(graph.operators):
            operands = [values.get(index) for index in operator.inputs]
            code = self.model.operatorCodes[operator.opcodeIndex]
            name = (code.customCode or b"").decode()
            if name.startswith(_FLEX):
                results = [_run_by_tensorflow(operator, operands)]
            elif code.builtinCode == schema.BuiltinOperator.WHILE:
                results = self._loop(operator.builtinOptions, operands)
            else:
                results = self._run_by_litert(number, place, values)
            values.update(zip(operator.outputs, results, strict=True))
        return [values[index] for index in graph.outputs]

    def _loop(self, options: Any, values: list[Value]) -> list[Value]:
        while self._run_graph(options.condSubgraphIndex, values)[0]:
            values = self._run_graph(options.bodySubgraphIndex, values)
        return values

    def _run_by_litert(
        self, number: int, place: int, values: dict[int, Value]
    ) -> list[Value]:
        operator = self.model.subgraphs[number].operators[place]
        constants = set(self._constants(number, operator.inputs))
        given = [k for k in operator.inputs if k >= 0 and k not in constants]
        key = number, place
        if key not in self.interpreters:
            self.interpreters[key] = self._open(number, place, given)
        interpreter = self.interpreters[key]
        details = interpreter.get_input_details()
        for detail, index in zip(details, dict.fromkeys(given), strict=True):
            shape = np.shape(values[index])
            interpreter.resize_tensor_input(detail["index"], shape)
        interpreter.allocate_tensors()
        for detail, index in zip(details, dict.fromkeys(given), strict=True):
            value = np.asarray(values[index], detail["dtype"])
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        outputs = interpreter.get_output_details()
        return [interpreter.get_tensor(detail["index"]).copy() for detail in outputs]

    def _open(self, number: int, place: int, given: Sequence[int]) -> Interpreter:
        """Return an interpreter of one operator, whose inputs are `given`."""
        model, graph = copy.copy(self.model), copy.copy(self.model.subgraphs[number])
        operator = graph.operators[place]
        graph.operators, graph.outputs = [operator], list(operator.outputs)
        graph.inputs = list(dict.fromkeys(given))
        model.subgraphs, model.signatureDefs, model.metadata = [graph], [], []
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), b"TFL3")
        return Interpreter(
            model_content=bytes(builder.Output()),
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        )

    def _constants(self, number: int, places: Sequence[int]) -> Iterator[int]:
        for index in places:
            tensor = self.model.subgraphs[number].tensors[index]
            if index >= 0 and self.model.buffers[tensor.buffer].data is not None:
                yield index

    def _constant(self, tensor: Any) -> NDArray[Any]:
        names = {value: name for name, value in vars(schema.TensorType).items()}
        dtype = np.dtype(names[tensor.type].lower())
        data = bytes(self.model.buffers[tensor.buffer].data)
        shape = () if tensor.shape is None else tuple(tensor.shape)
        return np.frombuffer(data, dtype).reshape(shape)


def _run_by_tensorflow(operator: Any, operands: Sequence[Value]) -> Value:
    """Run an operator on lists, whose definition is in its options."""
    import tensorflow as tf
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    options = flexbuffers.GetRoot(bytearray(operator.customOptions)).AsVector
    definition = NodeDef.FromString(options[1].AsStringBytes)
    function = getattr(tf.raw_ops, definition.op)
    names = inspect.signature(function).parameters
    attributes = dict(zip(names, operands, strict=False))
    if "element_dtype" in names:
        attributes["element_dtype"] = definition.attr["element_dtype"].type
    return function(**attributes)
