"""Recognition of the catalog's models in a folder, by the SHA-256 of their bytes."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.base.input_files import read_input_bytes
from firmwright.frontends.tflite import is_c_source, read_c_array

MODEL_SUFFIXES: Final = (".tflite", ".lite", ".onnx")
BYTES_MAX: Final = 64 << 20
"""Larger files are none of the catalog's, even as C source."""


def find_models(folder: str | Path, known: Iterable[str]) -> Mapping[str, Path]:
    """Return the first file with each of the `known` hashes in `folder`, by hash.

    Models in C source are recognized by the largest array, as when they are compiled.
    Files that cannot be read are skipped. Raise UsageError if there is no such folder.
    """
    if not Path(folder).is_dir():
        what = "this is not a folder."
        raise UsageError(what, where=str(folder), hint="name a folder with models.")
    wanted = frozenset(known)
    found: dict[str, Path] = {}
    for path in _candidates(Path(folder)):
        digest = model_digest(path)
        if digest in wanted and digest not in found:
            found[digest] = path
    return found


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield files that may be models, by name; links to folders are not followed."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.lower().endswith(MODEL_SUFFIXES) or is_c_source(name):
                yield Path(parent, name)


def model_digest(path: Path) -> str:
    """Return the SHA-256 of a model file; "" if it is none or cannot be read."""
    try:
        if path.stat().st_size > BYTES_MAX:
            return ""
        data = read_input_bytes(path)
        if is_c_source(path.name):
            data = read_c_array(data, path.name)
    except (OSError, FirmwrightError):
        return ""
    return hashlib.sha256(data).hexdigest()
