"""The child process of a conversion: `python child.py MODEL.keras MODEL.tflite BYTES`."""

import contextlib
import sys
import tempfile
from pathlib import Path

OPEN_BATCH = "The batch size is open."


def convert(source: str, target: str, memory: str) -> int:
    """Convert a model in limited memory, with batch size 1 if open; return the exit status."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    try:
        import keras
        import tensorflow as tf
    except ImportError:
        return 3
    model = keras.models.load_model(source, compile=False)
    signature = tf.nest.map_structure(
        lambda x: tf.TensorSpec([x.shape[0] or 1, *x.shape[1:]], x.dtype, name=x.name),
        model.inputs if len(model.inputs) == 1 else [model.input],
    )
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, format="tf_saved_model", input_signature=signature, verbose=False)
        converted = tf.lite.TFLiteConverter.from_saved_model(folder).convert()
    Path(target).write_bytes(converted)
    if any(x.shape[0] is None for x in model.inputs):
        print(OPEN_BATCH)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(convert(*sys.argv[1:]))
    except Exception as error:  # noqa: BLE001 - any error of TensorFlow
        sys.exit(f"{type(error).__name__}: {str(error) or 'memory'}")
