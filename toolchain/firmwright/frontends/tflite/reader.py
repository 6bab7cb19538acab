"""Reader of .tflite files, which converts untrusted bytes to a verified `RawModel`.

Source of the semantics: the TFLite schema and the checks of LiteRT's loader. A file is
broken only if the reference runtimes refuse it.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from firmwright import tflite_schema as schema
from firmwright.base.errors import ModelError
from firmwright.base.quant import Quantization
from firmwright.base.resource_limits import TENSOR_BYTES_MAX
from firmwright.frontends.tflite import decoded_model
from firmwright.frontends.tflite.decoded_model import (
    RawModel,
    RawNode,
    RawSignature,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.flatbuffer import Flatbuffer, FlatbufferTable
from firmwright.frontends.tflite.flexbuffer import read_flexbuffer_map
from firmwright.frontends.tflite.rewrites import model_rewrites
from firmwright.frontends.tflite.verify import verify_raw_model
from firmwright.ir.core import Attrs, Span

_T = TypeVar("_T")

_BIAS_DTYPES = ("int32", "int64")
_SMALLEST_SCALE = 2.0**-126


def read_tflite(data: bytes, file: str) -> RawModel:
    if len(data) < 8 or data[4:8] != schema.FILE_IDENTIFIER:
        what = (
            f"not a TFLite model: its {len(data)} bytes lack the identifier "
            f"{schema.FILE_IDENTIFIER.decode()} at byte 4."
        )
        hint = (
            "a file of the TensorFlow Lite converter, or .onnx, .pt2, .keras or .fwir."
        )
        raise ModelError(what, where=file, hint=hint)
    root = Flatbuffer(data, file).root("Model")
    version = root.integer("version")
    if version != schema.SCHEMA_VERSION:
        what = f"schema version {version} is not {schema.SCHEMA_VERSION}."
        root.fail("version", what)
    buffers = list(map(_buffer, root.tables("buffers")))
    opcodes = list(map(_opcode, root.tables("operator_codes")))
    description = root.text("description")
    subgraphs: list[RawSubgraph] = []
    for index, table in enumerate(root.tables("subgraphs")):
        subgraphs.append(_subgraph(table, index, buffers, opcodes))
    model = RawModel(
        file=file,
        description=description,
        subgraphs=tuple(subgraphs),
        signatures=tuple(map(_signature, root.tables("signature_defs"))),
        metadata=_metadata(root, buffers),
    )
    valid = [item for item in model.signatures if _is_valid_signature(model, item)]
    model = replace(model, signatures=tuple(valid))
    for rewrite in model_rewrites():
        model = rewrite(model)
    verify_raw_model(model)
    return model


def _metadata(root: FlatbufferTable, buffers: Sequence[bytes]) -> dict[str, bytes]:
    metadata: dict[str, bytes] = {}
    for table in root.tables("metadata"):
        if 0 <= table.integer("buffer") < len(buffers):
            name = table.text("name")
            metadata[name] = buffers[table.integer("buffer")]
    return metadata


def _is_valid_signature(model: RawModel, signature: RawSignature) -> bool:
    if not 0 <= signature.subgraph < len(model.subgraphs):
        return False
    count = len(model.subgraphs[signature.subgraph].tensors)
    return all(tensor < count for _, tensor in (*signature.inputs, *signature.outputs))


def _buffer(table: FlatbufferTable) -> bytes:
    """Return a buffer's bytes; beyond 2 GiB, they are at an offset in the file."""
    offset = table.integer("offset")
    size = table.integer("size")
    if offset <= 1:
        return table.blob("data")
    data = table.buffer.data
    if offset + size > len(data):
        what = f"{size} bytes at {offset} reach past the end of the file."
        table.fail("offset", what)
    table.buffer.spend(size, table.path)
    return data[offset : offset + size]


def _opcode(table: FlatbufferTable) -> tuple[str, int]:
    """Return (name, version) of an operator code; unknown ones are BUILTIN_<number>."""
    # Codes above 126 do not fit the first field; the larger of the two fields is valid.
    code = max(table.integer("deprecated_builtin_code"), table.integer("builtin_code"))
    if code < 0:
        table.fail("builtin_code", f"{code} is not an operator code.")
    name = schema.OPERATORS[code] if code < len(schema.OPERATORS) else f"BUILTIN_{code}"
    if name == "CUSTOM":
        name = f"custom:{table.text('custom_code')}"
    return name, table.integer("version")


def _signature(table: FlatbufferTable) -> RawSignature:
    return RawSignature(
        table.text("signature_key"),
        table.integer("subgraph_index"),
        _signature_tensors(table, "inputs"),
        _signature_tensors(table, "outputs"),
    )


def _signature_tensors(
    table: FlatbufferTable, side: str
) -> tuple[tuple[str, int], ...]:
    """Return (name, tensor index) of the inputs or outputs of a signature."""
    tensors: list[tuple[str, int]] = []
    for entry in table.tables(side):
        tensors.append((entry.text("name"), entry.integer("tensor_index")))
    return tuple(tensors)


def _subgraph(
    table: FlatbufferTable,
    index: int,
    buffers: Sequence[bytes],
    opcodes: Sequence[tuple[str, int]],
) -> RawSubgraph:
    operators = table.tables("operators")
    inputs = table.integers("inputs")
    outputs = table.integers("outputs")
    results = [operator.integers("outputs") for operator in operators]
    written = {*inputs, *itertools.chain(*results)}
    used = {*written, *outputs}
    used.update(*(operator.integers("inputs") for operator in operators))
    used.update(*(operator.integers("intermediates") for operator in operators))
    tensors: list[RawTensor] = []
    for k, entry in enumerate(table.tables("tensors")):
        if k not in used:
            tensors.append(RawTensor(k, entry.text("name"), (), "unused"))
            continue
        # An empty buffer is a constant only if no node writes the tensor, and only one
        # without elements.
        is_unwritten = k not in written
        tensors.append(_tensor(entry, k, buffers, may_be_empty_constant=is_unwritten))
    # The same input may be listed again, and a constant among the inputs cannot be set.
    free_inputs: list[int] = []
    for k in dict.fromkeys(inputs):
        if not 0 <= k < len(tensors) or tensors[k].buffer is None:
            free_inputs.append(k)

    def known(index: int) -> int:
        return index if 0 <= index < len(tensors) else decoded_model.NO_TENSOR

    nodes = []
    for k, (operator, written_here) in enumerate(zip(operators, results, strict=True)):
        first = next(iter(written_here), -1)
        name = tensors[first].name if 0 <= first < len(tensors) else ""
        op, version = _pick(opcodes, operator, "opcode_index")
        node = RawNode(
            op=op,
            version=version,
            inputs=operator.integers("inputs"),
            outputs=written_here,
            options=_options(operator, op),
            span=Span(table.buffer.file, index, k, name),
            custom_options=operator.blob("custom_options"),
            intermediates=tuple(map(known, operator.integers("intermediates"))),
        )
        nodes.append(node)
    return RawSubgraph(
        table.text("name"), tuple(tensors), tuple(free_inputs), outputs, tuple(nodes)
    )


def _options(table: FlatbufferTable, op: str) -> Attrs:
    """Return all options, including the schema's defaults for builtin operators."""
    if op.startswith("custom:"):
        return read_flexbuffer_map(table.blob("custom_options")) or {}
    expected = schema.OPTIONS_OF_OPERATOR.get(op)
    stored = schema.OPTION_TABLES.get(table.integer("builtin_options_type"))
    # The options of another operator are ignored.
    if stored is None or (expected and schema.TABLES[expected] and stored != expected):
        return _defaults(expected) if expected else {}
    options = table.table("builtin_options", stored)
    return options.attributes() if options else _defaults(stored)


def _defaults(table: str) -> Attrs:
    return {name: field.default_value for name, field in schema.TABLES[table].items()}


def _tensor(
    table: FlatbufferTable,
    index: int,
    buffers: Sequence[bytes],
    *,
    may_be_empty_constant: bool,
) -> RawTensor:
    shape = table.integers("shape")
    dtype = table.enumerator("type")
    sparse = table.table("sparsity") is not None
    data = _pick(buffers, table, "buffer") if table.integer("buffer") else b""
    elements = _elements(table, shape, dtype)
    is_constant = bool(data) or (elements == 0 and may_be_empty_constant)
    if is_constant and not sparse:
        _check_constant(table, shape, dtype, len(data))
    signature = table.integers("shape_signature")
    if len(signature) != len(shape):
        signature = ()
    return RawTensor(
        index=index,
        name=table.text("name"),
        shape=shape,
        dtype=dtype,
        quantization=_quantization(table, shape, dtype),
        buffer=data if is_constant else None,
        is_variable=bool(table.integer("is_variable")),
        is_sparse=sparse,
        shape_signature=signature,
    )


def _elements(table: FlatbufferTable, shape: Sequence[int], dtype: str) -> int:
    if any(size < -1 for size in shape):
        table.fail("shape", f"{list(shape)} has a negative size.")
    if len(shape) > 8:
        table.fail("shape", f"it has rank {len(shape)}, beyond 8.")
    elements = math.prod(max(size, 1) for size in shape)
    if elements * schema.ELEMENT_BITS.get(dtype, 8) > 8 * TENSOR_BYTES_MAX:
        what = f"{list(shape)} of {dtype} is more than {TENSOR_BYTES_MAX} bytes."
        table.fail("shape", what)
    return -1 if -1 in shape else math.prod(shape)


def _check_constant(
    table: FlatbufferTable, shape: Sequence[int], dtype: str, size: int
) -> None:
    bits = schema.ELEMENT_BITS.get(dtype)
    if bits is None:
        return
    if -1 in shape:
        table.fail("shape", f"a constant has the dynamic shape {list(shape)}.")
    need = (math.prod(shape) * bits + 7) // 8
    if size != need:
        what = f"{list(shape)} of {dtype} takes {need} bytes, its buffer has {size}."
        table.fail("buffer", what)


def _quantization(
    table: FlatbufferTable, shape: Sequence[int], dtype: str
) -> Quantization | None:
    """Return the tensor's quantization, or None.

    A tensor without scales, or with only zero scales, is unquantized. The quantization
    of a float tensor and an invalid one of a bias are ignored.
    """
    details = table.table("quantization")
    if details is None or dtype not in decoded_model.INTEGER_RANGES:
        return None
    scales = details.floats("scale")
    zero_points = details.integers("zero_point")
    if not any(scales):
        return None
    if dtype in _BIAS_DTYPES:
        is_valid = _is_valid_bias_quantization(scales, zero_points, shape, dtype)
        if not is_valid:
            return None
    if len(scales) != len(zero_points):
        what = f"{len(zero_points)} zero points for {len(scales)} scales."
        details.fail("zero_point", what)
    for scale in scales:
        if not (math.isfinite(scale) and scale >= 0.0):
            details.fail("scale", f"{scale!r} is not a positive finite number.")
    # A channel of scale 0 is multiplied by 0, and so is one of the smallest scale.
    scales = tuple(scale or _SMALLEST_SCALE for scale in scales)
    if len(scales) == 1:
        return Quantization(scales, zero_points)
    axis = details.integer("quantized_dimension")
    if not 0 <= axis < len(shape) or shape[axis] != len(scales):
        what = f"{len(scales)} scales do not fit dimension {axis} of {list(shape)}."
        details.fail("quantized_dimension", what)
    return Quantization(scales, zero_points, axis)


def _is_valid_bias_quantization(
    scales: Sequence[float],
    zero_points: Sequence[int],
    shape: Sequence[int],
    dtype: str,
) -> bool:
    low, high = decoded_model.INTEGER_RANGES[dtype]
    return (
        len(scales) == len(zero_points)
        and (len(scales) == 1 or len(scales) in shape)
        and all(math.isfinite(scale) and scale > 0.0 for scale in scales)
        and all(low <= zero_point <= high for zero_point in zero_points)
    )


def _pick(items: Sequence[_T], table: FlatbufferTable, name: str) -> _T:
    index = table.integer(name)
    if not 0 <= index < len(items):
        table.fail(name, f"{index} is out of range: there are {len(items)}.")
    return items[index]
