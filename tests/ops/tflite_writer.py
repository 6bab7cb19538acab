"""Write conformance cases as a .tflite file with the classes of the published schema.

A file may hold many independent cases. Tensors are named `CASE.xK` for input K and
`CASE.yK` for output K, where CASE is the index of the case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase

OPTIONS: Mapping[str, str] = {
    "ADD": "AddOptions",
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "CONV_3D": "Conv3DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "CUMSUM": "CumsumOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "DEQUANTIZE": "DequantizeOptions",
    "EXPAND_DIMS": "ExpandDimsOptions",
    "DIV": "DivOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "GATHER": "GatherOptions",
    "GELU": "GeluOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "LOCAL_RESPONSE_NORMALIZATION": "LocalResponseNormalizationOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "MUL": "MulOptions",
    "ONE_HOT": "OneHotOptions",
    "PACK": "PackOptions",
    "PAD": "PadOptions",
    "PADV2": "PadV2Options",
    "QUANTIZE": "QuantizeOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "REVERSE_SEQUENCE": "ReverseSequenceOptions",
    "SHAPE": "ShapeOptions",
    "SOFTMAX": "SoftmaxOptions",
    "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "SPLIT": "SplitOptions",
    "SPLIT_V": "SplitVOptions",
    "SQUEEZE": "SqueezeOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUB": "SubOptions",
    "SUM": "ReducerOptions",
    "SVDF": "SVDFOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "UNPACK": "UnpackOptions",
}
"""Operator -> its options table; operators without one are not listed."""

ENUMERATIONS: Mapping[str, type] = {
    "padding": schema.Padding,
    "fused_activation_function": schema.ActivationFunctionType,
    "weights_format": schema.FullyConnectedOptionsWeightsFormat,
    "quantized_bias_type": schema.TensorType,
}

VERSIONS: Mapping[str, int] = {
    "ADD": 2,
    "AVERAGE_POOL_2D": 2,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "DEQUANTIZE": 2,
    "FULLY_CONNECTED": 4,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "MUL": 2,
    "PAD": 2,
    "PADV2": 2,
    "QUANTIZE": 2,
    "RELU": 2,
    "RELU6": 2,
    "SOFTMAX": 2,
    "SUB": 2,
    "TRANSPOSE_CONV": 3,
}
"""Operator version that introduced int8 (and per-channel weights); 1 if not listed."""


def write_cases(cases: Sequence[ConformanceCase]) -> bytes:
    """Return a model that runs every one of `cases`."""
    writer = _Writer()
    for index, case in enumerate(cases):
        writer.add(index, case)
    return writer.finish()


def input_names(index: int, case: ConformanceCase) -> list[str]:
    """Return the names of the variable inputs of the case at `index`."""
    return [
        f"{index}.x{position}"
        for position, tensor in enumerate(case.inputs)
        if tensor is not None and tensor.has_samples
    ]


def output_names(index: int, case: ConformanceCase) -> list[str]:
    return [f"{index}.y{position}" for position in range(len(case.outputs))]


class _Writer:
    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes = []
        self.model.buffers = [schema.BufferT()]
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.codes: dict[str, int] = {}

    def add(self, index: int, case: ConformanceCase) -> None:
        operator = schema.OperatorT()
        operator.opcodeIndex = self._code(case.builtin)
        operator.inputs = [
            -1 if tensor is None else self._tensor(f"{index}.x{position}", tensor)
            for position, tensor in enumerate(case.inputs)
        ]
        operator.outputs = [
            self._tensor(f"{index}.y{position}", tensor)
            for position, tensor in enumerate(case.outputs)
        ]
        operator.intermediates = [
            self._tensor(f"{index}.z{position}", tensor)
            for position, tensor in enumerate(case.intermediates)
        ]
        if case.builtin.startswith("custom:"):
            operator.customOptions = flexbuffer(case.options)
        elif case.builtin in OPTIONS:
            name = OPTIONS[case.builtin]
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            operator.builtinOptions = _options(name, case.options)
        elif case.options:
            raise KeyError(f"{case.builtin} has options but no row in OPTIONS")
        self.graph.operators.append(operator)
        self.graph.inputs += [
            place
            for place, tensor in zip(operator.inputs, case.inputs, strict=True)
            if tensor is not None and tensor.has_samples
        ]
        self.graph.outputs += operator.outputs

    def finish(self) -> bytes:
        self.model.subgraphs = [self.graph]
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def _code(self, builtin: str) -> int:
        if builtin not in self.codes:
            is_custom = builtin.startswith("custom:")
            number = getattr(schema.BuiltinOperator, "CUSTOM" if is_custom else builtin)
            code = schema.OperatorCodeT()
            if is_custom:
                code.customCode = builtin.removeprefix("custom:")
            code.builtinCode = number
            code.deprecatedBuiltinCode = min(number, 127)
            # Interpreters select by data type; the version only protects old readers.
            code.version = VERSIONS.get(builtin, 1)
            self.codes[builtin] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        return self.codes[builtin]

    def _tensor(self, name: str, tensor: CaseTensor) -> int:
        made = schema.TensorT()
        made.name = name
        made.shape = list(tensor.shape)
        made.type = getattr(schema.TensorType, tensor.dtype.upper())
        made.isVariable = tensor.is_state
        if tensor.scales:
            quant = schema.QuantizationParametersT()
            quant.scale = np.array(tensor.scales, np.float32)
            quant.zeroPoint = np.array(tensor.zero_points, np.int64)
            quant.quantizedDimension = tensor.axis or 0
            made.quantization = quant
        if tensor.data is not None:
            made.buffer = len(self.model.buffers)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(tensor.data.tobytes(), np.uint8)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1


def _options(name: str, values: Mapping[str, Any]) -> Any:
    options = getattr(schema, f"{name}T")()
    for key, value in values.items():
        first, *rest = key.split("_")
        field = first + "".join(word.capitalize() for word in rest)
        if not hasattr(options, field):
            raise KeyError(f"{name} has no field {field}")
        if isinstance(value, str):
            value = getattr(ENUMERATIONS[key], value.upper())
        setattr(options, field, list(value) if isinstance(value, tuple) else value)
    return options


def flexbuffer(options: Mapping[str, Any]) -> list[int]:
    """Return a FlexBuffer map, the format of custom operator options."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in options.items():
            builder.Key(key)
            builder.Add(value)
    return list(builder.Finish())
