"""Conversion of Keras models by TensorFlow, in a child process, to .tflite models."""

import io
import json
import logging
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from firmwright.base.child_process import python_command, run_program
from firmwright.base.errors import (
    FirmwrightError,
    ModelError,
    ToolFailedError,
    ToolMissingError,
)
from firmwright.base.resource_limits import check_count, scaled_limit
from firmwright.frontends.keras.config_check import find_foreign_classes
from firmwright.frontends.keras.conversion_cache import (
    find_conversion,
    keep_conversion,
)

log = logging.getLogger(__name__)
KERAS_HINT = (
    "pip install 'firmwright[keras]', or convert the model where TensorFlow is, by "
    "TFLiteConverter as in docs/models.md."
)
_HDF5_MARK = b"\x89HDF\r\n\x1a\n"
_TIMEOUT_S = 900.0
_EXPANSION_MAX = 64
_MEMORY_BYTES_MAX = 8 << 30
"""Addresses of the child process; TensorFlow itself takes up to 3 GB."""
_ZIP_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)


def is_keras(data: bytes) -> bool:
    return data[:8] == _HDF5_MARK or (
        data[:4] == b"PK\x03\x04" and b"model.weights.h5" in data
    )


def convert_keras(data: bytes, file: str) -> bytes:
    """Return a .tflite file; an open batch is 1. A result is kept for the next call.

    Raise ModelError if the model names classes that are not Keras's, ToolMissingError
    without TensorFlow.
    """
    suffix = ".h5" if data[:8] == _HDF5_MARK else ".keras"
    if suffix == ".keras":
        _check_archive(data, file)
    kept = find_conversion(data)
    if kept is not None:
        log.info("%s: as TensorFlow has converted it before", file)
        return kept
    converted = _convert(data, suffix, file)
    keep_conversion(data, converted)
    return converted


def _convert(data: bytes, suffix: str, file: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="firmwright-keras-") as name:
        folder = Path(name)
        source = folder / f"model{suffix}"
        target = folder / "model.tflite"
        answer = folder / "answer.json"
        source.write_bytes(data)
        memory = str(scaled_limit(_MEMORY_BYTES_MAX))
        command = python_command(
            "firmwright.frontends.keras.child", folder, source, memory
        )
        log.info("converting %s by TensorFlow", file)
        status, printed = run_program(
            command,
            "TensorFlow",
            timeout_s=_TIMEOUT_S,
            where=file,
            environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        if not answer.is_file():
            what = f"TensorFlow crashed on {file}."
            raise ToolFailedError(what, exit_status=status, output=printed)
        result = json.loads(answer.read_text(encoding="utf-8"))
        if result["status"] != "converted":
            raise _error(result, file)
        batch = ", with batch size 1 for None" if result["open_batch"] else ""
        log.warning(
            "%s: converted to floats%s; see docs/models.md.",
            file,
            batch,
            extra={"once": True},
        )
        return target.read_bytes()


def _check_archive(data: bytes, file: str) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            limit = _EXPANSION_MAX * len(data)
            check_count(unpacked, limit, "its files unpack to {} bytes", file)
            foreign = find_foreign_classes(archive.read("config.json").decode("utf-8"))
    except _ZIP_DAMAGE as error:
        what = f"it is not a Keras archive ({error!s:.80})."
        raise ModelError.broken(what, file) from error
    if foreign:
        raise _error({"status": "foreign", "what": foreign}, file)


def _error(answer: Mapping[str, object], file: str) -> FirmwrightError:
    what = str(answer.get("what", ""))
    match answer["status"]:
        case "missing":
            return ToolMissingError(
                f"{file} is a Keras model, but TensorFlow is not installed.",
                hint=KERAS_HINT,
            )
        case "old":
            old = (
                f"Keras {answer['version']} may execute code of a model file while it "
                "loads it."
            )
            hint = "pip install 'keras>=3.11.3'."
            return ToolMissingError(old, where=file, hint=hint)
        case "foreign":
            hint = (
                "if you trust the file, convert it where it was made, by "
                "TFLiteConverter as in docs/models.md; or replace these layers by "
                "layers of Keras."
            )
            named = (
                "the model names classes whose code firmwright does not execute: "
                f"{what}."
            )
            return ModelError(named, where=file, hint=hint)
        case "outside":
            return ModelError(f"{what!r} of the model is in another file.", where=file)
        case "weights":
            hint = "save the whole model: model.save('model.keras')."
            what = "the file has weights without a model."
            return ModelError(what, where=file, hint=hint)
        case "broken":
            return ModelError.broken(f"{what}.", file)
    if str(answer.get("saved_by", "")).startswith(("1.", "2.")):
        hint = (
            "pip install tf_keras, which loads files of Keras 2; or convert the "
            "model where it was made, by TFLiteConverter as in docs/models.md."
        )
        last = what.strip().splitlines()[-1:] or [""]
        old = (
            "the model was saved by Keras 2, and Keras 3 cannot load it: "
            f"{last[0].rstrip('.')}."
        )
        return ModelError(old, where=file, hint=hint)
    return ToolFailedError(f"TensorFlow cannot convert {file}.", output=what)
