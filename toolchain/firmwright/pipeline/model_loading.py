"""Loading of model files (.tflite, .onnx, .pt2) and module text (.fwir)."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import ModelError, UsageError
from firmwright.base.input_files import read_input_bytes
from firmwright.base.recursion import raise_recursion_limit
from firmwright.base.resource_limits import TENSOR_BYTES_MAX, check_count
from firmwright.frontends import onnx, pytorch, tflite
from firmwright.frontends.keras import convert_keras, is_keras
from firmwright.frontends.onnx import ModelOverrides, is_onnx, preprocess_model
from firmwright.frontends.pytorch import is_pytorch
from firmwright.frontends.scikit_learn import convert_pickle, is_pickle
from firmwright.frontends.tflite import (
    is_c_source,
    preprocess_tflite,
    read_c_array,
    read_tflite,
)
from firmwright.frontends.tflite.importer import import_model
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.separate_results import separate_results
from firmwright.ir.module import DEFAULT_ENTRY, IRModule
from firmwright.ir.printer import parse_module
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.custom_ops import supports_custom_op
from firmwright.pipeline.module_trust import without_trust
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cores import CORE_KINDS
from firmwright.targets.registry import backend_of, check_target


def load_module(
    path: str | Path, *, name: str = "", given: ModelOverrides = ModelOverrides()
) -> IRModule:
    file = Path(path)
    try:
        data = read_input_bytes(file)
    except OSError as error:
        raise UsageError(
            f"the model cannot be read: {error.strerror}.",
            where=str(file),
            hint="another path.",
        ) from error
    return load_module_bytes(
        complete_model(data, file, given),
        file.name,
        name=name,
        path=file,
        shapes=given.shapes,
    )


def complete_model(
    data: bytes,
    file: Path,
    given: ModelOverrides = ModelOverrides(),
    *,
    trust: bool = False,
) -> bytes:
    """Return the bytes with overrides and external data.

    C source, Keras models and estimators of scikit-learn are converted; the latter only
    with `trust`, or if the user trusts `file`.
    """
    if is_pickle(data, file.name):
        data = convert_pickle(data, file, trust=trust)
    is_text = data[:10] == b"firmwright"
    if is_c_source(file.name) and not is_text:
        data = read_c_array(data, file.name)
    if is_keras(data):
        data = convert_keras(data, file.name)
    if not is_text and is_onnx(data, file.name):
        return preprocess_model(data, file.name, given, file.parent)
    if given.bindings:
        raise UsageError("--fix-input is for ONNX models.", where=str(file))
    if not is_text and is_pytorch(data, file.name):
        return data  # its shapes are set when it is imported
    if not is_text:
        return preprocess_tflite(data, file.name, given.shapes)
    if given.shapes:
        raise UsageError("--input-shape is for model files.", where=str(file))
    return data


def with_declared_axis(
    data: bytes, file: Path, given: ModelOverrides
) -> ModelOverrides:
    """Return the overrides, with the bounded axis that a PyTorch program declares."""
    is_other = data[:10] == b"firmwright" or is_keras(data)
    if given.shapes or is_other or not is_pytorch(data, file.name):
        return given
    return pytorch.declared_overrides(data, file.name)


def shapes_of_open_inputs(
    data: bytes, file: Path, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return those of the shapes that inputs of a model leave open, by name.

    Shapes of other models' inputs, or with other sizes than the file's, are left out.
    """
    found: Mapping[str, tuple[int | None, ...]] = {}
    if is_onnx(data, file.name):
        found = onnx.open_inputs(data, file.name)
    elif not is_pytorch(data, file.name):
        found = tflite.open_inputs(data, file.name)
    fitting: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        declared = found.get(name, ())
        pairs = zip(declared, shape, strict=False)
        fits = all(known in (None, size) for known, size in pairs)
        if declared and len(declared) == len(shape) and fits:
            fitting[name] = shape
    return fitting


def load_module_bytes(
    data: bytes,
    file: str,
    *,
    name: str = "",
    signature: str = "",
    path: Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> IRModule:
    """Load a module from bytes; `file` names it in messages. Module text is verified.

    `shapes` are those of inputs of a PyTorch program with dynamic sizes.

    `signature` selects one of several entry points of a .tflite file. Code in module
    text is trusted if the user trusts `path`. Raises ModelError, UsageError or
    UnsupportedError.
    """
    raise_recursion_limit()
    if data[:10] == b"firmwright":
        try:
            module = parse_module(data.decode("utf-8"), file)
        except UnicodeDecodeError as error:
            raise ModelError("the module's text is not UTF-8.", where=file) from error
        _check_targets(module, file)
        intrinsics = collect_intrinsics(module, INTRINSICS)
        _check_entry(module, file)
        verify_module(module, op_table(), intrinsics)
        if isinstance(module.entry, Function) and not module.is_started:
            module = module.with_function(separate_results(module.entry))
        return without_trust(_checked(module, file), path or Path(file))
    name = name or to_model_identifier(Path(file).stem)
    if is_pytorch(data, file):
        module = pytorch.import_pytorch(data, file, name, op_table(), shapes)
        return _checked(module, file)
    if is_onnx(data, file):
        return _checked(
            onnx.import_onnx(data, file, name, op_table(), supports_custom_op), file
        )
    raw = read_tflite(data, file)
    return import_model(raw, name, data, op_table(), signature, supports_custom_op)


def _check_targets(module: IRModule, file: str) -> None:
    """Raise ModelError for a target with an attribute that its kind does not have."""
    for name, target in module.targets.items():
        backend = backend_of(target)
        kind = backend.kind if backend else CORE_KINDS.get(target.kind)
        if kind is None:  # of a backend that is not installed
            continue
        try:
            check_target(target, kind)
        except UsageError as error:
            raise ModelError(
                f"@{name}: {error.what}", where=file, hint=error.hint
            ) from None


def _check_entry(module: IRModule, file: str) -> None:
    """Raise ModelError unless the entry is a graph or an AOT main."""
    name = module.entry_name or DEFAULT_ENTRY
    match module.functions.get(name):
        case None:
            problem = f"the entry {name!r} is not a function of the module"
        case tir.PrimFunc(attrs=attrs) if not attrs.get("aot_main"):
            problem = f"the entry {name!r} is neither a graph nor an AOT main"
        case _:
            return
    raise ModelError(
        f"{problem}.", where=file, hint='the attribute entry="NAME" of the module.'
    )


def _checked(module: IRModule, file: str) -> IRModule:
    """Return the module; raise ModelError if a tensor is too large for any device."""
    for graph in module.functions.values():
        if not isinstance(graph, Function):
            continue
        for call in graph.body:
            for value in call.outputs:
                what = f"tensor {value.name} has {{}} bytes"
                check_count(value.type.size_bytes, TENSOR_BYTES_MAX, what, file)
    return module


def source_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
