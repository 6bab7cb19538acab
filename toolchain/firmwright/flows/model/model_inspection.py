"""Describes a model file: tensors, operators, cost, and unsupported features.

Unsupported features are no errors here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import UnsupportedError, UnsupportedItem
from firmwright.base.input_files import read_input_bytes
from firmwright.base.quant import Quantization
from firmwright.flows.model.model import load_model
from firmwright.frontends import pytorch
from firmwright.frontends.onnx import ModelOverrides, is_onnx
from firmwright.frontends.onnx.reader import OnnxModel, OnnxValueInfo, read_onnx
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ops.registry import op_table
from firmwright.pipeline import complete_model

UNKNOWN_SIZE = -1
"""The size of an axis that is known only at run time."""


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A tensor as the model declares it; axes may be of `UNKNOWN_SIZE`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """An operator in the file's terms.

    `macs` is None if the operator is unsupported or defined in the module.
    """

    index: int
    kind: str
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    macs: int | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """The tensors and operators of a model; `parameters_bytes` counts its constants."""

    name: str
    stage: str
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    operators: tuple[ModelOperator, ...]
    parameters_bytes: int
    unsupported: tuple[UnsupportedItem, ...] = ()

    @property
    def macs(self) -> int | None:
        total = 0
        for operator in self.operators:
            if operator.macs is None:
                return None
            total += operator.macs
        return total


def inspect_model(
    path: str | Path, overrides: ModelOverrides = ModelOverrides()
) -> Inspection:
    """Inspect a model file; raise UsageError or ModelError if it cannot be read."""
    try:
        return inspect_module(load_model(path, overrides=overrides).module)
    except UnsupportedError as error:
        # Only model files are imported, so this is not a .fwir.
        file = Path(path)
        data = complete_model(read_input_bytes(file), file, overrides)
        if pytorch.is_pytorch(data, file.name):
            program = pytorch.read_program(data, file.name)
            model, _ = pytorch.translate_program(program, file.name)
            return _inspect_unsupported_onnx(file, error.items, model)
        if is_onnx(data, file.name):
            onnx_model = read_onnx(data, file.name)
            return _inspect_unsupported_onnx(file, error.items, onnx_model)
        return _inspect_unsupported_tflite(file, error.items, data)


def inspect_module(module: IRModule) -> Inspection:
    """Inspect a module; a lowered one has only the tensors of its interface."""
    entry = module.entry
    stage = "lowered"
    body: Sequence[Call] = ()
    inputs: Sequence[Value | IoTensor] = module.io.inputs
    outputs: Sequence[Value | IoTensor] = module.io.outputs
    if isinstance(entry, Function):
        stage = "graph"
        body = entry.body
        inputs = entry.params
        outputs = entry.results
    operators: list[ModelOperator] = []
    for index, call in enumerate(body):
        operators.append(_operator(index, call, module))
    sizes = [constant.size_bytes for constant in module.constants.values()]
    return Inspection(
        name=module.name,
        stage=module.results.stage or stage,
        inputs=tuple(map(describe_tensor, inputs)),
        outputs=tuple(map(describe_tensor, outputs)),
        operators=tuple(operators),
        parameters_bytes=sum(sizes),
    )


def _operator(index: int, call: Call, module: IRModule) -> ModelOperator:
    macs = None
    if not call.op.startswith("@"):
        macs = op_table()[call.op].macs(make_op_call(call, module))
    inputs = tuple(map(describe_tensor, call.variables))
    outputs = tuple(map(describe_tensor, call.outputs))
    return ModelOperator(index, call.op, inputs, outputs, macs)


def describe_tensor(tensor: Value | IoTensor) -> ModelTensor:
    kind = tensor.type
    return ModelTensor(tensor.name, kind.dtype.name, kind.shape, kind.quantization)


def _inspect_unsupported_tflite(
    file: Path, items: Sequence[UnsupportedItem], data: bytes
) -> Inspection:
    graph = read_tflite(data, file.name).subgraphs[0]
    operators: list[ModelOperator] = []
    for index, node in enumerate(graph.nodes):
        operators.append(_raw_operator(index, node, graph))
    return Inspection(
        name=file.stem,
        stage="file",
        inputs=tuple(_raw_tensor(graph.tensors[index]) for index in graph.inputs),
        outputs=tuple(_raw_tensor(graph.tensors[index]) for index in graph.outputs),
        operators=tuple(operators),
        parameters_bytes=sum(len(tensor.buffer or b"") for tensor in graph.tensors),
        unsupported=tuple(items),
    )


def _inspect_unsupported_onnx(
    file: Path, items: Sequence[UnsupportedItem], model: OnnxModel
) -> Inspection:
    operators: list[ModelOperator] = []
    for index, node in enumerate(model.nodes):
        first_output = node.output[0] if node.output else ""
        kind = model.titles.get(first_output, node.op_type)
        operators.append(ModelOperator(index, kind, inputs=(), outputs=()))
    return Inspection(
        name=file.stem,
        stage="file",
        inputs=tuple(map(_onnx_tensor, model.inputs)),
        outputs=tuple(map(_onnx_tensor, model.outputs)),
        operators=tuple(operators),
        parameters_bytes=sum(array.nbytes for array in model.initializers.values()),
        unsupported=tuple(items),
    )


def _onnx_tensor(tensor: OnnxValueInfo) -> ModelTensor:
    shape: list[int] = []
    for size in tensor.shape or ():
        shape.append(size if isinstance(size, int) else UNKNOWN_SIZE)
    return ModelTensor(tensor.name, tensor.dtype, tuple(shape), None)


def _raw_operator(index: int, node: RawNode, graph: RawSubgraph) -> ModelOperator:
    operands = [graph.tensors[number] for number in node.inputs if number != NO_TENSOR]
    variables = [tensor for tensor in operands if tensor.buffer is None]
    outputs = [graph.tensors[number] for number in node.outputs]
    inputs = tuple(map(_raw_tensor, variables))
    return ModelOperator(index, node.op, inputs, tuple(map(_raw_tensor, outputs)))


def _raw_tensor(tensor: RawTensor) -> ModelTensor:
    shape: list[int] = []
    for axis, size in enumerate(tensor.shape):
        shape.append(UNKNOWN_SIZE if axis in tensor.dynamic_axes else size)
    return ModelTensor(tensor.name, tensor.dtype, tuple(shape), tensor.quantization)
