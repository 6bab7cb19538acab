"""Results of TensorFlow, which needs seconds to start, kept for the next command.

An entry is a .tflite file, which is read like any other: it contains no code.
"""

import hashlib
import logging
import os
from importlib import metadata
from pathlib import Path
from typing import Final

from firmwright.artifacts import replace_file
from firmwright.base.cache_folder import cache_root
from firmwright.base.version import VERSION

log = logging.getLogger(__name__)
_CONVERTERS: Final = ("tensorflow", "keras")
_OWN_FILES: Final = ("child.py", "config_check.py")


def find_conversion(data: bytes) -> bytes | None:
    """Return what these bytes of a Keras model became before, else None."""
    entry = _entry(data)
    if entry is None:
        return None
    try:
        converted = entry.read_bytes()
        os.utime(entry)  # the least recently used entries are removed first
    except OSError:
        return None
    return converted


def keep_conversion(data: bytes, converted: bytes) -> None:
    """Keep a result, if the folder can be written to."""
    entry = _entry(data)
    if entry is None:
        return
    try:
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(entry, converted)
    except OSError as error:
        log.debug("the conversion is not kept: %s", error)


def _entry(data: bytes) -> Path | None:
    """Return the file of a result, which depends on the versions of all that made it.

    None if a package is not installed.
    """
    try:
        versions = [f"{name} {metadata.version(name)}" for name in _CONVERTERS]
    except metadata.PackageNotFoundError:
        return None
    digest = hashlib.sha256(f"{VERSION}, {', '.join(versions)}\n".encode())
    for name in _OWN_FILES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    digest.update(data)
    return cache_root() / "models" / f"{digest.hexdigest()}.tflite"
