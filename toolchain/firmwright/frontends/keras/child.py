"""`python -m firmwright.frontends.keras.child FOLDER MODEL BYTES` converts a model.

It writes FOLDER/model.tflite and FOLDER/answer.json: the `status` ("converted", or why
not), and what belongs to it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firmwright.frontends.keras.config_check import find_foreign_classes

if TYPE_CHECKING:
    from h5py import Group

OLDEST_KERAS = (3, 11, 3)
"""The first version that refuses code in .h5 files, too, with `safe_mode`."""
_EARLIER_VERSIONS = ("1.", "2.")
"""Keras 3 cannot load all files of these; the package tf_keras is Keras 2."""


def convert(folder: Path, source: Path, memory_bytes: int) -> dict[str, object]:
    """Convert a model in limited memory, an open batch being 1; return the answer."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        is_hdf5 = source.suffix == ".h5"
        refusal = _check_hdf5(source) if is_hdf5 else _check_weights(source)
    except ImportError:
        return {"status": "missing"}
    if refusal:
        return refusal
    try:
        import keras
        import tensorflow  # noqa: F401
    except ImportError:
        return {"status": "missing"}
    if _version(keras.__version__) < OLDEST_KERAS:
        return {"status": "old", "version": keras.__version__}
    try:
        model = keras.models.load_model(str(source), compile=False, safe_mode=True)
    except Exception:
        if not _saved_by(source).startswith(_EARLIER_VERSIONS):
            raise
        model = _load_by_keras_2(source)
        if model is None:
            raise
        converted = _convert_by_keras_2(model)
    else:
        converted = _convert_by_keras_3(model)
    (folder / "model.tflite").write_bytes(converted)
    is_open = any(x.shape[0] is None for x in model.inputs)
    return {"status": "converted", "open_batch": is_open}


def _convert_by_keras_3(model: Any) -> bytes:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as saved:
        model.export(
            saved,
            format="tf_saved_model",
            input_signature=_signature(model),
            verbose=False,
        )
        return bytes(tf.lite.TFLiteConverter.from_saved_model(saved).convert())


def _load_by_keras_2(source: Path) -> Any:
    """Load a file, whose classes are checked, by tf_keras; None without the package."""
    try:
        import tf_keras
    except ImportError:
        return None
    return tf_keras.models.load_model(str(source), compile=False, safe_mode=True)


def _convert_by_keras_2(model: Any) -> bytes:
    import tensorflow as tf

    function = tf.function(model).get_concrete_function(*_signature(model))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
    return bytes(converter.convert())


def _signature(model: Any) -> Any:
    """Return the types of the arguments of a call, with 1 for an open batch."""
    import tensorflow as tf

    inputs = model.inputs if len(model.inputs) == 1 else [model.input]
    return tf.nest.map_structure(
        lambda x: tf.TensorSpec([x.shape[0] or 1, *x.shape[1:]], x.dtype, name=x.name),
        inputs,
    )


def _check_hdf5(source: Path) -> dict[str, object] | None:
    """Return why the file must not be loaded, or None.

    Keras reads it by h5py, too, which TensorFlow brings.
    """
    import h5py

    with h5py.File(source, "r") as file:
        config = file.attrs.get("model_config")
        outside = next(_links_out(file), "")
    if config is None:
        return {"status": "weights"}
    if outside:
        return {"status": "outside", "what": outside}
    text = config.decode("utf-8") if isinstance(config, bytes) else str(config)
    try:
        foreign = find_foreign_classes(text)
    except ValueError as error:
        return {"status": "broken", "what": str(error)}
    return {"status": "foreign", "what": foreign} if foreign else None


def _check_weights(source: Path) -> dict[str, object] | None:
    import h5py

    with zipfile.ZipFile(source) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(weights, "r") as file:
        outside = next(_links_out(file), "")
    return {"status": "outside", "what": outside} if outside else None


def _links_out(group: Group) -> Iterator[str]:
    """Yield the names of objects whose contents are in other files."""
    import h5py

    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
            yield name
            continue
        item = group.get(name)
        if isinstance(item, h5py.Group):
            yield from _links_out(item)
        elif isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            yield name


def _saved_by(source: Path) -> str:
    """Return the version of Keras that saved the file, "" if it does not say that."""
    try:
        if source.suffix == ".keras":
            with zipfile.ZipFile(source) as archive:
                return str(json.loads(archive.read("metadata.json"))["keras_version"])
        import h5py

        with h5py.File(source, "r") as file:
            return str(file.attrs["keras_version"])
    except (ImportError, OSError, LookupError, TypeError, ValueError, MemoryError):
        return ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split(".")[:3])


def main(folder: str, source: str, memory_bytes: str) -> None:
    try:
        answer = convert(Path(folder), Path(source), int(memory_bytes))
    except Exception as error:  # noqa: BLE001 - any error of TensorFlow
        what = f"{type(error).__name__}: {str(error) or 'memory'}"
        answer = {"status": "failed", "what": what, "saved_by": _saved_by(Path(source))}
    target = Path(folder) / "answer.json"
    target.write_text(json.dumps(answer), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
