"""Reads .npz and .npy files without trust: no pickle, no more memory than data.

A header is checked against the bytes that follow it before an array is made.
"""

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

import numpy as np

from firmwright.base.dtypes import FLOAT16, Array, DType
from firmwright.base.errors import UsageError
from firmwright.base.input_files import check_regular_file, read_input_bytes
from firmwright.base.resource_limits import scaled_limit

_MAGIC: Final = b"\x93NUMPY"
_MAGIC_OF_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_UNPACKED_BYTES_MAX: Final = 1 << 30
_EXPANSION_MAX: Final = 100
"""An archive may unpack to the larger of this size and this multiple of its own."""
_READ_HEADER: Final = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_HEADER_ERRORS: Final = (
    *(ValueError, TypeError, SyntaxError, EOFError, RecursionError, struct.error),
    *(tokenize.TokenError, UnicodeDecodeError, OverflowError, MemoryError),
)
_ARCHIVE_ERRORS: Final = (
    *(ValueError, EOFError, zipfile.BadZipFile, zlib.error),
    *(NotImplementedError, RuntimeError),  # unsupported compression, encryption
)


def file_dtype(dtype: DType) -> DType:
    """Return the type of the arrays that hold numbers of `dtype` in a file.

    Of the storage types, numpy itself has float16 only: numbers of the others are held
    in the type that computes them.
    """
    return dtype if dtype is FLOAT16 else dtype.computed


def read_npz(path: str | Path) -> dict[str, Array]:
    """Return the arrays of an .npz file of plain arrays; UsageError for others."""
    try:
        check_regular_file(path)
        with open(path, "rb") as file:
            return _arrays_of_archive(file)
    except OSError as error:
        what = f"the arrays cannot be read: {error.strerror or error}."
        raise UsageError(what, where=str(path)) from error
    except _ARCHIVE_ERRORS as error:
        what = f"this is not an .npz file of plain arrays: {error}."
        hint = "write it with numpy.savez(path, input_1=array)."
        raise UsageError(what, where=str(path), hint=hint) from error


def read_npy(path: str | Path) -> Array:
    """Return the array of an .npy file of plain numbers; UsageError for others."""
    try:
        return _array_of(read_input_bytes(path))
    except (OSError, ValueError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else error
        what = f"this is not a .npy file of plain numbers: {reason}."
        hint = "write it with numpy.save(path, array)."
        raise UsageError(what, where=str(path), hint=hint) from error


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes arrays for a flag


def read_npz_bytes(data: bytes) -> dict[str, Array]:
    """Return the arrays in .npz bytes; ValueError or BadZipFile for others."""
    return _arrays_of_archive(io.BytesIO(data))


def _arrays_of_archive(file: IO[bytes]) -> dict[str, Array]:
    magic = file.read(len(_MAGIC))
    if magic == _MAGIC:
        raise ValueError("it holds a single array")
    if not magic.startswith(_MAGIC_OF_ZIP):
        raise ValueError("it is no archive")
    packed = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(item.file_size for item in archive.infolist())
        if unpacked > max(scaled_limit(_UNPACKED_BYTES_MAX), _EXPANSION_MAX * packed):
            raise ValueError(f"its {packed:,} bytes unpack to {unpacked:,}")
        arrays: dict[str, Array] = {}
        for name in archive.namelist():
            arrays[name.removesuffix(".npy")] = _array_of(archive.read(name))
        return arrays


def _array_of(data: bytes) -> Array:
    """Return the array in the bytes of an .npy file; ValueError if damaged."""
    if not data.startswith(_MAGIC):
        raise ValueError("it is no array")
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        shown = f"{version[0]}.{version[1]}"
        raise ValueError(f"its format version {shown} is not supported")
    try:
        shape, is_fortran, dtype = _READ_HEADER[version](stream)
    except _HEADER_ERRORS:
        # Messages of numpy advise to load the file unsafely.
        raise ValueError("the header of an array is damaged") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    at, count = stream.tell(), math.prod(shape)
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        what = f"the header of an array has the shape {list(shape)} of {dtype}"
        raise ValueError(what)
    needed, found = count * dtype.itemsize, len(data) - at
    if needed > found:
        what = f"the header of an array requires {needed:,} bytes, and {found:,} follow"
        raise ValueError(what)
    flat = np.frombuffer(data, dtype, count, at).copy()
    return flat.reshape(shape, order="F" if is_fortran else "C")
