"""Completion of an ONNX file: shapes, fixed inputs, external data, class labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.frontends.onnx.protobuf import Message, dtype_name, onnx_package
from firmwright.frontends.onnx.reader import parse_model
from firmwright.ir.bounded_axis import BoundedAxis


@dataclass(frozen=True, slots=True)
class BoundedShapes:
    """A bounded axis, and its places in the shapes of the inputs that have it."""

    axis: BoundedAxis
    places: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelOverrides:
    """The user's input shapes and constants (`bindings`: arrays or flat tuples).

    Shapes have the largest size of an axis that is `bounded`.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bindings: Mapping[str, Array | tuple[float, ...]] = field(default_factory=dict)
    bounded: BoundedShapes | None = None

    def at(self, size: int) -> ModelOverrides:
        """Return the overrides at one size of the bounded axis."""
        if self.bounded is None:
            return self
        shapes = dict(self.shapes)
        for name, places in self.bounded.places.items():
            sizes = list(shapes[name])
            for place in places:
                sizes[place] = size
            shapes[name] = tuple(sizes)
        return ModelOverrides(shapes, self.bindings)


def preprocess_model(
    data: bytes,
    file: str,
    overrides: ModelOverrides = ModelOverrides(),
    folder: Path | None = None,
) -> bytes:
    """Return the bytes of the complete model, unchanged if complete already."""
    model = parse_model(data, file)
    outside = list(_external_tensors(model))
    has_classes = _has_class_labels(model)
    if not (outside or overrides.shapes or overrides.bindings or has_classes):
        return data
    if has_classes:
        _strip_class_labels(model)
    for tensor in outside:
        _read_external_data(tensor, file, folder)
    inputs = {item.name: item for item in model.graph.input}
    for name in (*overrides.shapes, *overrides.bindings):
        if name not in inputs:
            hint = f"its inputs are {', '.join(sorted(inputs)) or 'none'}."
            raise UsageError(f"the model has no input {name!r}.", where=file, hint=hint)
    for name, shape in overrides.shapes.items():
        _set_shape(inputs[name], shape, file)
    for name, values in overrides.bindings.items():
        _fix_input(model, inputs[name], values, file)
    return bytes(model.SerializeToString(deterministic=True))


def open_inputs(data: bytes, file: str) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the inputs with an open size, which is None."""
    shapes: dict[str, tuple[int | None, ...]] = {}
    for info in parse_model(data, file).graph.input:
        declared = _declared_sizes(info.type.tensor_type.shape)
        if None in declared:
            shapes[info.name] = tuple(declared)
    return shapes


def _set_shape(info: Message, shape: tuple[int, ...], file: str) -> None:
    tensor = info.type.tensor_type
    if tensor.HasField("shape"):
        declared = _declared_sizes(tensor.shape)
        if not _is_compatible(declared, shape):
            shown = ",".join("?" if n is None else str(n) for n in declared)
            wanted = ",".join(map(str, shape))
            what = (
                f"--input-shape {info.name}={wanted} contradicts the model, where it "
                f"is {shown}."
            )
            raise UsageError(what, where=file)
    tensor.shape.Clear()
    for size in shape:
        tensor.shape.dim.add().dim_value = size
    if not shape:
        tensor.shape.SetInParent()


def _declared_sizes(shape: Message) -> list[int | None]:
    """Return the sizes of the axes, None for those that are not fixed."""
    sizes: list[int | None] = []
    for dim in shape.dim:
        is_fixed = dim.HasField("dim_value") and dim.dim_value >= 0
        sizes.append(dim.dim_value if is_fixed else None)
    return sizes


def _is_compatible(declared: Sequence[int | None], shape: Sequence[int]) -> bool:
    if len(declared) != len(shape):
        return False
    pairs = zip(declared, shape, strict=True)
    return all(known in (None, size) for known, size in pairs)


def _fix_input(
    model: Message, info: Message, values: Array | tuple[float, ...], file: str
) -> None:
    tensor = info.type.tensor_type
    kind = np.dtype(dtype_name(tensor.elem_type))
    if isinstance(values, tuple):
        sizes = [dim.dim_value for dim in tensor.shape.dim]
        wanted = sizes if 0 not in sizes else -1
        try:
            array = np.array(values).astype(kind).reshape(wanted)
        except ValueError as error:
            what = (
                f"{len(values)} values are bound to {info.name!r}, which has the shape "
                f"{sizes}."
            )
            raise UsageError(what, where=file) from error
    else:
        array = np.asarray(values)
        if array.dtype != kind:
            what = (
                f"the constant for {info.name!r} is {array.dtype}, but the input is "
                f"{kind}."
            )
            raise UsageError(what, where=file)
    constant = onnx_package().numpy_helper.from_array(array, info.name)
    model.graph.initializer.append(constant)
    # Before version 4 of the format, an initializer is an input, too.
    if model.ir_version >= 4:
        model.graph.input.remove(info)


def _external_tensors(message: Message) -> Iterator[Message]:
    """Yield the tensors with data in other files, also of attributes and subgraphs."""
    if message.DESCRIPTOR.name == "TensorProto":
        if message.data_location == onnx_package().TensorProto.EXTERNAL:
            yield message
        return
    for entry, value in message.ListFields():
        if entry.message_type is not None:
            items = value if isinstance(value, Sequence) else (value,)
            for item in items:
                yield from _external_tensors(item)


def _is_file_in(folder: Path, location: str) -> bool:
    """Check for a regular file of the folder itself.

    It is no link that leaves the folder, no pipe and no device.
    """
    path = (folder / location).resolve()
    return (
        Path(location).name == location
        and path.parent == folder.resolve()
        and path.is_file()
    )


def _read_external_data(tensor: Message, file: str, folder: Path | None) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None or not location or not _is_file_in(folder, location):
        raise UsageError(
            f"the data of {tensor.name!r} are not in the model's folder: {location!r}.",
            where=file,
            hint=(
                "keep them in the model's own folder, or save the model with its data "
                "inside: onnx.save(onnx.load(FILE), FILE, "
                "save_as_external_data=False)."
            ),
        )
    try:
        with (folder / location).open("rb") as stream:
            stream.seek(int(entries.get("offset", "0")))
            # Without a length, the data go up to the end of the file.
            tensor.raw_data = stream.read(int(entries.get("length", "-1")))
    except (OSError, ValueError) as error:
        what = f"the data of {tensor.name!r} cannot be read: {error}."
        hint = "keep the file in the model's folder."
        raise UsageError(what, where=str(folder / location), hint=hint) from error
    tensor.ClearField("external_data")
    tensor.data_location = onnx_package().TensorProto.DEFAULT


_NAMES = "classlabels_strings"


def _has_class_labels(model: Message) -> bool:
    for node in model.graph.node:
        if node.domain == "ai.onnx.ml":
            attributes = [item.name for item in node.attribute]
            if node.op_type == "ZipMap" or _NAMES in attributes:
                return True
    return False


def _strip_class_labels(model: Message) -> None:
    """Remove ZipMap nodes and replace string labels by class indices, in place."""
    graph, onnx = model.graph, onnx_package()
    for node in list(graph.node):
        if node.op_type == "ZipMap":
            graph.node.remove(node)
            _replace_output(graph, node.output[0], node.input[0])
    for node in graph.node:
        is_tree = "Tree" in node.op_type
        name = "classlabels_int64s" if is_tree else "classlabels_ints"
        for item in list(node.attribute):
            if item.name != _NAMES:
                continue
            count = len(item.strings)
            places = onnx.helper.make_attribute(name, list(range(count)))
            node.attribute.remove(item)
            node.attribute.append(places)
    for output in graph.output:
        if output.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            output.type.tensor_type.elem_type = onnx.TensorProto.INT64


def _replace_output(graph: Message, name: str, source: str) -> None:
    onnx = onnx_package()
    kind = onnx.TensorProto.FLOAT
    for output in graph.output:
        if output.name == name:
            output.CopyFrom(onnx.helper.make_tensor_value_info(name, kind, None))

    def renamed(item: str) -> str:
        return name if item == source else item

    for node in graph.node:
        node.output[:] = list(map(renamed, node.output))
        node.input[:] = list(map(renamed, node.input))
