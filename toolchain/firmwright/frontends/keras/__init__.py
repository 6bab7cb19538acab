"""Conversion of Keras models by TensorFlow, in a child process, to .tflite models."""

import logging
import sys
import tempfile
from pathlib import Path

from firmwright.base.child_process import run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.frontends.keras.child import OPEN_BATCH

log = logging.getLogger(__name__)
KERAS_HINT = (
    "install TensorFlow (pip install tensorflow) next to firmwright, or convert the model where "
    "TensorFlow is: model.export('saved', format='tf_saved_model', input_signature=["
    "tf.TensorSpec([1, *x.shape[1:]], x.dtype) for x in model.inputs]); "
    "tf.lite.TFLiteConverter.from_saved_model('saved').convert() returns the bytes of a .tflite "
    "file."
)
_HDF5_MARK = b"\x89HDF\r\n\x1a\n"
_WITHOUT_TENSORFLOW = 3
"""The exit status of the child process if TensorFlow is not installed."""
_TIMEOUT_S = 900.0


def is_keras(data: bytes) -> bool:
    return data[:8] == _HDF5_MARK or (data[:4] == b"PK\x03\x04" and b"model.weights.h5" in data)


def convert_keras(data: bytes, file: str) -> bytes:
    """Return the model as a .tflite file; an open batch size becomes 1.

    Raise ToolMissingError without TensorFlow.
    """
    suffix = ".h5" if data[:8] == _HDF5_MARK else ".keras"
    with tempfile.TemporaryDirectory(prefix="firmwright-keras-") as name:
        source, target = Path(name) / f"model{suffix}", Path(name) / "model.tflite"
        source.write_bytes(data)
        child = Path(__file__).with_name("child.py")
        command = [sys.executable, str(child), str(source), str(target)]
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
        if OPEN_BATCH in printed:
            log.warning("%s: the batch size is open and taken as 1.", file)
        return target.read_bytes()
