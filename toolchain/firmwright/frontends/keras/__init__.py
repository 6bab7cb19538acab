"""Conversion of Keras models by TensorFlow, in a child process, to .tflite models."""

import contextlib
import io
import logging
import sys
import tempfile
import zipfile
from pathlib import Path

from firmwright.base.child_process import run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.resource_limits import check_count, scaled_limit
from firmwright.frontends.keras.child import OPEN_BATCH

log = logging.getLogger(__name__)
KERAS_HINT = (
    "pip install tensorflow, or convert the model where TensorFlow is, by TFLiteConverter as in "
    "docs/keras.md."
)
_HDF5_MARK = b"\x89HDF\r\n\x1a\n"
_WITHOUT_TENSORFLOW = 3
"""The exit status of the child process if TensorFlow is not installed."""
_TIMEOUT_S = 900.0
_EXPANSION_MAX = 64
_MEMORY_BYTES_MAX = 8 << 30
"""Addresses of the child process; TensorFlow itself takes up to 3 GB."""


def is_keras(data: bytes) -> bool:
    return data[:8] == _HDF5_MARK or (data[:4] == b"PK\x03\x04" and b"model.weights.h5" in data)


def convert_keras(data: bytes, file: str) -> bytes:
    """Return a .tflite file; an open batch is 1. Raise ToolMissingError without TensorFlow."""
    suffix = ".h5" if data[:8] == _HDF5_MARK else ".keras"
    if suffix == ".keras":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            limit = _EXPANSION_MAX * len(data)
            check_count(unpacked, limit, "its files unpack to {} bytes", file)
    with tempfile.TemporaryDirectory(prefix="firmwright-keras-") as name:
        source, target = Path(name) / f"model{suffix}", Path(name) / "model.tflite"
        source.write_bytes(data)
        child = Path(__file__).with_name("child.py")
        memory = str(scaled_limit(_MEMORY_BYTES_MAX))
        command = [sys.executable, str(child), str(source), str(target), memory]
        log.info("converting %s by TensorFlow", file)
        status, printed = run_program(command, "TensorFlow", timeout_s=_TIMEOUT_S, where=file)
        if status == _WITHOUT_TENSORFLOW:
            raise ToolMissingError(
                f"{file} is a Keras model, but TensorFlow is not installed.", hint=KERAS_HINT
            )
        if status or not target.is_file():
            raise ToolFailedError(
                f"TensorFlow cannot convert {file}.", exit_status=status, output=printed
            )
        batch = ", with batch size 1 for None" if OPEN_BATCH in printed else ""
        log.warning(
            "%s: converted to floats%s; see docs/keras.md.", file, batch, extra={"once": True}
        )
        return target.read_bytes()
