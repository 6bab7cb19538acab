"""Describes a model file: tensors, operators, cost, and unsupported features (no error here)."""

from collections.abc import Iterable, Sequence
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
from firmwright.frontends.tflite.decoded_model import NO_TENSOR, RawNode, RawSubgraph, RawTensor
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ops.registry import op_table
from firmwright.pipeline import complete_model


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A tensor as the model declares it; an axis whose size is known only at run time is -1."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """An operator in the file's terms; `macs` is None if unsupported or defined in the module."""

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
        counts = [operator.macs for operator in self.operators]
        return None if None in counts else sum(count or 0 for count in counts)


def inspect_model(path: str | Path, overrides: ModelOverrides = ModelOverrides()) -> Inspection:
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
            return _inspect_unsupported_onnx(file, error.items, read_onnx(data, file.name))
        return _inspect_unsupported_tflite(file, error.items, data)


def inspect_module(module: IRModule) -> Inspection:
    entry = module.entry
    inputs: Iterable[Value | IoTensor] = module.io.inputs
    outputs: Iterable[Value | IoTensor] = module.io.outputs
    stage, body = "lowered", tuple[Call, ...]()
    if isinstance(entry, Function):
        stage, body, inputs, outputs = "graph", entry.body, entry.params, entry.results
    return Inspection(
        module.name,
        module.results.stage or stage,
        tuple(map(describe_tensor, inputs)),
        tuple(map(describe_tensor, outputs)),
        tuple(_operator(index, call, module) for index, call in enumerate(body)),
        sum(constant.size_bytes for constant in module.constants.values()),
    )


def _operator(index: int, call: Call, module: IRModule) -> ModelOperator:
    macs = None if call.op.startswith("@") else op_table()[call.op].macs(make_op_call(call, module))
    inputs = tuple(map(describe_tensor, call.variables))
    return ModelOperator(index, call.op, inputs, tuple(map(describe_tensor, call.outputs)), macs)


def describe_tensor(tensor: Value | IoTensor) -> ModelTensor:
    kind = tensor.type
    return ModelTensor(tensor.name, kind.dtype.name, kind.shape, kind.quantization)


def _inspect_unsupported_tflite(
    file: Path, items: Sequence[UnsupportedItem], data: bytes
) -> Inspection:
    graph = read_tflite(data, file.name).subgraphs[0]
    return Inspection(
        file.stem,
        "file",
        tuple(_raw_tensor(graph.tensors[index]) for index in graph.inputs),
        tuple(_raw_tensor(graph.tensors[index]) for index in graph.outputs),
        tuple(_raw_operator(index, node, graph) for index, node in enumerate(graph.nodes)),
        sum(len(tensor.buffer or b"") for tensor in graph.tensors),
        tuple(items),
    )


def _inspect_unsupported_onnx(
    file: Path, items: Sequence[UnsupportedItem], model: OnnxModel
) -> Inspection:
    return Inspection(
        file.stem,
        "file",
        tuple(map(_onnx_tensor, model.inputs)),
        tuple(map(_onnx_tensor, model.outputs)),
        tuple(
            ModelOperator(
                index, model.titles.get(next(iter(node.output), ""), node.op_type), (), ()
            )
            for index, node in enumerate(model.nodes)
        ),
        sum(array.nbytes for array in model.initializers.values()),
        tuple(items),
    )


def _onnx_tensor(tensor: OnnxValueInfo) -> ModelTensor:
    shape = tuple(size if isinstance(size, int) else -1 for size in tensor.shape or ())
    return ModelTensor(tensor.name, tensor.dtype, shape, None)


def _raw_operator(index: int, node: RawNode, graph: RawSubgraph) -> ModelOperator:
    operands = [graph.tensors[i] for i in node.inputs if i != NO_TENSOR]
    return ModelOperator(
        index,
        node.op,
        tuple(_raw_tensor(tensor) for tensor in operands if tensor.buffer is None),
        tuple(_raw_tensor(graph.tensors[i]) for i in node.outputs),
    )


def _raw_tensor(tensor: RawTensor) -> ModelTensor:
    shape = tuple(
        -1 if axis in tensor.dynamic_axes else size for axis, size in enumerate(tensor.shape)
    )
    return ModelTensor(tensor.name, tensor.dtype, shape, tensor.quantization)
