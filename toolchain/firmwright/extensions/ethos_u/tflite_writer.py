"""Write calls as a TFLite file, the input of accelerators' compilers.

This needs the extra `ethos-u`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, Array
from firmwright.base.errors import NotSupportedError, ToolMissingError
from firmwright.base.quant import Quantization
from firmwright.ir.graph import Call, OpCall, TensorType, Value
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.attributes.layers import (
    PoolAttrs,
    TransposeConvAttrs,
    WindowAttrs,
)
from firmwright.ir.graph.attributes.movement import PadAttrs, StridedSliceAttrs
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.module import IRModule
from firmwright.ops.conv_window import same_padding
from firmwright.tflite_schema import (
    ENUMERATIONS,
    FILE_IDENTIFIER,
    OPERATORS,
    OPTION_TABLES,
    OPTIONS_OF_OPERATOR,
    SCHEMA_VERSION,
    TABLES,
)

Table = Mapping[str, Any]
"""Fields of a table of the schema by name, tables as pairs (name, fields)."""
_SCALARS = {
    "i8": "Int8",
    "u8": "Uint8",
    "bool": "Bool",
    "i32": "Int32",
    "u32": "Uint32",
    "f32": "Float32",
    "i64": "Int64",
    "u64": "Uint64",
}
_OLD_CODE_MAX = 127
_PAIRS = {
    "stride": "stride_{0}",
    "dilation": "dilation_{0}_factor",
    "size": "filter_{1}",
}
"""Attributes of (height, width) with the names of their fields."""


@dataclass(frozen=True, slots=True)
class _TfliteOperator:
    """An operator of TFLite; `inputs` adds inputs that are attributes of the call."""

    name: str
    inputs: Callable[[OpCall, list[Any]], list[Any]] = lambda call, inputs: inputs


def _with(*attrs: str) -> Callable[[OpCall, list[Any]], list[Any]]:
    def inputs_with_attrs(call: OpCall, inputs: list[Any]) -> list[Any]:
        added = [np.array(getattr(call.attrs, attr)) for attr in attrs]
        return [*inputs, *added]

    return inputs_with_attrs


def _shape_first(call: OpCall, inputs: list[Any]) -> list[Any]:
    """Return the inputs of TRANSPOSE_CONV: shape, weights, x and perhaps the bias."""
    x, weights, *bias = inputs
    return [np.array(call.output.shape), weights, x, *bias]


def _shape_last(call: OpCall, inputs: list[Any]) -> list[Any]:
    return [*inputs, np.array(call.output.shape)]


def _slice_inputs(call: OpCall, inputs: list[Any]) -> list[Any]:
    attrs = call.attributes(StridedSliceAttrs)
    begin, step = np.array(attrs.begin), np.array(attrs.strides)
    counts = np.array(attrs.counts)
    if min(step) < 1 or attrs.shrunk:
        raise NotSupportedError("a slice backwards or without an axis")
    return [*inputs, begin, begin + (counts - 1) * step + 1, step]


def _pad_inputs(call: OpCall, inputs: list[Any]) -> list[Any]:
    if len(inputs) > 1:
        raise NotSupportedError("padding with another value than zero")
    return [*inputs, np.reshape(call.attributes(PadAttrs).paddings, (-1, 2))]


_SAME_NAME = (
    "add",
    "sub",
    "mul",
    "maximum",
    "minimum",
    "abs",
    "relu",
    "relu6",
    "relu_n1_to_1",
    "leaky_relu",
    "hard_swish",
    "logistic",
    "tanh",
    "concatenation",
    "softmax",
    "quantize",
)
_OPERATORS = {
    "conv2d": _TfliteOperator("CONV_2D"),
    "depthwise_conv2d": _TfliteOperator("DEPTHWISE_CONV_2D"),
    "average_pool2d": _TfliteOperator("AVERAGE_POOL_2D"),
    "max_pool2d": _TfliteOperator("MAX_POOL_2D"),
    "transpose_conv": _TfliteOperator("TRANSPOSE_CONV", _shape_first),
    "fully_connected": _TfliteOperator("CONV_2D"),
    "reshape": _TfliteOperator("RESHAPE", _shape_last),
    "pad": _TfliteOperator("PAD", _pad_inputs),
    "mean": _TfliteOperator("MEAN", _with("axes")),
    "split": _TfliteOperator("SPLIT_V", _with("sizes", "axis")),
    "transpose": _TfliteOperator("TRANSPOSE", _with("perm")),
    "strided_slice": _TfliteOperator("STRIDED_SLICE", _slice_inputs),
    "resize_bilinear": _TfliteOperator("RESIZE_BILINEAR", _with("size")),
    "resize_nearest": _TfliteOperator("RESIZE_NEAREST_NEIGHBOR", _with("size")),
    **{name: _TfliteOperator(name.upper()) for name in _SAME_NAME},
}
WRITABLE = tuple(_OPERATORS)
"""Operators that `write_tflite` can write."""


def write_tflite(
    calls: Sequence[Call],
    module: IRModule,
    params: Iterable[Value],
    results: Iterable[Value],
) -> bytes:
    """Return a file of the calls; its tensors have the names of the values.

    Raises:
        NotSupportedError: TFLite cannot express a call.
    """
    writer = _ModelWriter(module)
    inputs = [writer.tensor(value) for value in params]
    operators: list[Table] = []
    for call in calls:
        operators += writer.operators(call)
    outputs = [writer.tensor(value) for value in results]
    return writer.file(operators, inputs, outputs)


@dataclass
class _ModelWriter:
    module: IRModule
    tensors: list[Table] = field(default_factory=list)
    buffers: list[Table] = field(default_factory=lambda: [{}])
    codes: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def tensor(self, value: Value | None) -> int:
        """Return the number of the tensor for a value; -1 for an omitted one."""
        if value is None:
            return -1
        if value.name not in self.numbers:
            stored = None
            if value.constant:
                stored = self.module.constants[value.constant].array()
            self.numbers[value.name] = self._add(value.name, value.type, stored)
        return self.numbers[value.name]

    def _add(self, name: str, kind: TensorType, stored: Array | None = None) -> int:
        table = {
            "name": name,
            "shape": kind.shape,
            "type": kind.dtype.name,
            "buffer": 0 if stored is None else len(self.buffers),
        }
        if kind.quantization:
            table["quantization"] = _quantization(kind.quantization)
        self.tensors.append(table)
        if stored is not None:
            self.buffers.append({"data": np.frombuffer(stored.tobytes(), np.uint8)})
        return len(self.tensors) - 1

    def operators(self, call: Call) -> list[Table]:
        described = make_op_call(call, self.module)
        if call.op not in _OPERATORS:
            raise NotSupportedError(f"the operator {call.op}")
        if call.op == "fully_connected":
            return self._matrix_as_convolution(call, described)
        row = _OPERATORS[call.op]
        inputs = [self.tensor(value) for value in call.inputs]
        values = _option_values(described)
        arguments = []
        for item in row.inputs(described, inputs):
            is_array = isinstance(item, np.ndarray)
            arguments.append(self._number(item) if is_array else item)
        outputs = [self.tensor(value) for value in call.outputs]
        return [self._operator(row.name, arguments, outputs, values)]

    def _matrix_as_convolution(self, call: Call, described: OpCall) -> list[Table]:
        """Return a convolution of one column: Vela derives its multiplier exactly."""
        weights = described.constant(1)
        if weights is None:
            raise NotSupportedError("weights that are not constant")
        outputs, depth = weights.shape
        rows, name = described.input(0).elements // depth, call.outputs[0].name

        def as_image(kind: TensorType, *shape: int, **stored: Array) -> int:
            own_name = f"{name}/{len(self.tensors)}"
            return self._add(own_name, replace(kind, shape=shape), **stored)

        x, y = self.tensor(call.inputs[0]), self.tensor(call.outputs[0])
        image = as_image(described.input(0), 1, rows, 1, depth)
        array = weights.array()
        kernel = as_image(described.input(1), outputs, 1, 1, depth, stored=array)
        result = as_image(described.output, 1, rows, 1, outputs)
        arguments = [image, kernel, *(self.tensor(value) for value in call.inputs[2:])]
        return [
            self._operator("RESHAPE", [x, self._shape(image)], [image], {}),
            self._operator("CONV_2D", arguments, [result], _option_values(described)),
            self._operator("RESHAPE", [result, self._shape(y)], [y], {}),
        ]

    def _shape(self, tensor: int) -> int:
        return self._number(np.array(self.tensors[tensor]["shape"]))

    def _number(self, values: Array) -> int:
        return self._add("", TensorType(values.shape, INT32), values.astype(np.int32))

    def _operator(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], values: Table
    ) -> Table:
        if name not in self.codes:
            self.codes.append(name)
        table = OPTIONS_OF_OPERATOR.get(name, "")
        numbers = {own: key for key, own in OPTION_TABLES.items()}
        number = numbers.get(table, 0)
        operator = {
            "opcode_index": self.codes.index(name),
            "inputs": inputs,
            "outputs": outputs,
            "builtin_options_type": number,
        }
        if number:
            known = TABLES.get(table, {})
            options = {key: value for key, value in values.items() if key in known}
            operator["builtin_options"] = (table, options)
        return operator

    def file(
        self, operators: Sequence[Table], inputs: Sequence[int], outputs: Sequence[int]
    ) -> bytes:
        subgraph = {
            "tensors": self.tensors,
            "inputs": inputs,
            "outputs": outputs,
            "operators": operators,
        }
        codes = []
        for name in self.codes:
            code = OPERATORS.index(name)
            old_code = min(code, _OLD_CODE_MAX)
            codes.append({"deprecated_builtin_code": old_code, "builtin_code": code})
        model = {
            "version": SCHEMA_VERSION,
            "operator_codes": codes,
            "subgraphs": [subgraph],
            "buffers": self.buffers,
        }
        builder = _flatbuffers().Builder(1024)
        root = _write_table(builder, "Model", model)
        builder.Finish(root, file_identifier=FILE_IDENTIFIER)
        return bytes(builder.Output())


def _quantization(kind: Quantization) -> Table:
    return {
        "scale": np.array(kind.scales, np.float32),
        "zero_point": np.array(kind.zero_points, np.int64),
        "quantized_dimension": kind.axis or 0,
    }


def _option_values(call: OpCall) -> dict[str, Any]:
    """Return values for the fields of any table of options."""
    attrs: dict[str, Any] = attrs_to_mapping(call.attrs)
    activation = str(attrs.get("activation", "none")).upper()
    if activation not in ENUMERATIONS["Activation"]:
        raise NotSupportedError(f"the fused activation {activation.lower()}")
    values = {**attrs, "fused_activation_function": activation, "padding": "VALID"}
    for attr, pattern in _PAIRS.items():
        for axis, value in zip(("h", "w"), attrs.get(attr, ()), strict=False):
            long_name = {"h": "height", "w": "width"}[axis]
            values[pattern.format(axis, long_name)] = value
    values |= {
        "stride_h": values.get("stride_h", 1),
        "stride_w": values.get("stride_w", 1),
        "num_splits": len(call.outputs),
        "new_shape": call.output.shape,
    }
    if call.op == "depthwise_conv2d":
        values["depth_multiplier"] = call.output.shape[3] // call.input(0).shape[3]
    if call.op == "transpose_conv":
        has_padding = any(call.attributes(TransposeConvAttrs).before)
        values["padding"] = "SAME" if has_padding else "VALID"
    elif isinstance(call.attrs, WindowAttrs) and any(call.attrs.padding):
        if not _is_same(call):
            raise NotSupportedError("explicit padding")
        values["padding"] = "SAME"
    return values


def _is_same(call: OpCall) -> bool:
    attrs = call.attributes(WindowAttrs)
    size = attrs.size if isinstance(attrs, PoolAttrs) else call.input(1).shape[1:3]
    image = call.input(0).shape[1:3]
    padding: list[int] = []
    for axis in zip(image, size, attrs.stride, attrs.dilation, strict=True):
        padding += same_padding(*axis)
    return attrs.padding == tuple(padding)


def _flatbuffers() -> Any:
    try:
        import flatbuffers
    except ImportError as error:
        package = "the Python package flatbuffers"
        what = f"writing TFLite files needs {package}, which is not installed."
        hint = "pip install 'firmwright[ethos-u]'."
        raise ToolMissingError(what, hint=hint) from error
    return flatbuffers


def _write_table(builder: Any, name: str, values: Table) -> Any:
    fields = TABLES[name]
    # Objects cannot be nested in the file: all that this table refers to comes first.
    written = {}
    for key, content in values.items():
        written[key] = _write_value(builder, fields[key].type, content)
    slots = [item.slot for item in fields.values()]
    builder.StartObject(1 + max(slots, default=0))
    for key, value in written.items():
        name, slot = fields[key].type, fields[key].slot
        kind = "Int8" if name in ENUMERATIONS else _SCALARS.get(name, "")
        if kind:
            flags = getattr(_flatbuffers().number_types, f"{kind}Flags")
            builder.PrependSlot(flags, slot, value, fields[key].default)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
    return builder.EndObject()


def _write_value(builder: Any, kind: str, value: Any) -> Any:
    """Return a scalar, or the position of a written object."""
    if kind in ENUMERATIONS:
        return ENUMERATIONS[kind].index(value)
    if kind in _SCALARS:
        return value
    if kind == "string":
        return builder.CreateString(value)
    if kind == "BuiltinOptions":
        return _write_table(builder, *value)
    if not kind.startswith("["):
        return _write_table(builder, kind, value)
    if kind[1:-1] in _SCALARS:
        dtype = np.dtype(_SCALARS[kind[1:-1]].lower().replace("bool", "bool_"))
        return builder.CreateNumpyVector(np.asarray(value, dtype))
    positions = [_write_table(builder, kind[1:-1], item) for item in value]
    builder.StartVector(4, len(positions), 4)
    for position in reversed(positions):
        builder.PrependUOffsetTRelative(position)
    return builder.EndVector()
