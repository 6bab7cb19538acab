"""From a model's file, or a module's text, to a module.

In: bytes. Out: an `IRModule` that no pass has touched. ModelError, UsageError, UnsupportedError for
what cannot be read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from firmwright.base.deep_trees import allow_deep_trees
from firmwright.base.errors import ModelError, UsageError
from firmwright.base.names import sanitise
from firmwright.frontends.onnx import Given, complete, import_onnx, is_onnx
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.importer import import_model
from firmwright.ir.module import IRModule
from firmwright.ir.text import parse_module
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import import_table, op_table
from firmwright.partitioning.custom import is_claimed
from firmwright.partitioning.libraries import intrinsics_of
from firmwright.schedules.registry import INTRINSICS


def load(path: str | Path, *, name: str = "", given: Given = Given()) -> IRModule:
    """The module of a model file (.tflite, .onnx) or of a module's text (.fwir)."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the model cannot be read: {error.strerror}.", where=str(file), hint="another path."
        ) from error
    return load_bytes(completed(data, file, given), file.name, name=name)


def completed(data: bytes, file: Path, given: Given = Given()) -> bytes:
    """The model's bytes with all that it leaves open: `given`, and data that lie beside it."""
    if data[:10] != b"firmwright" and is_onnx(data, file.name):
        return complete(data, file.name, given, file.parent)
    if given.shapes or given.bindings:
        raise UsageError("--shape and --bind are for ONNX models.", where=str(file))
    return data


def load_bytes(data: bytes, file: str, *, name: str = "", signature: str = "") -> IRModule:
    """As `load`, from bytes; `file` names them in messages. A text is verified before any pass.

    `signature` is the entry point of a .tflite file that has several.
    """
    allow_deep_trees()
    if data[:10] == b"firmwright":
        try:
            module = parse_module(data.decode("utf-8"), file)
        except UnicodeDecodeError as error:
            raise ModelError("the module's text is not UTF-8.", where=file) from error
        verify_module(module, op_table(), intrinsics_of(module, INTRINSICS))
        return module
    name = name or sanitise(Path(file).stem)
    if is_onnx(data, file):
        return import_onnx(data, file, name, op_table(), is_claimed)
    raw = read_tflite(data, file)
    return import_model(raw, name, import_table(), data, op_table(), signature, is_claimed)


def source_digest(data: bytes) -> str:
    """The hash that a module remembers its model file by."""
    return hashlib.sha256(data).hexdigest()
