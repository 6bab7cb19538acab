"""The zip archive of torch.export, read within limits, without torch and pickle."""

import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import ModelError, NotSupportedError
from firmwright.base.json_input import (
    JsonObject,
    as_integer,
    as_object,
    as_objects,
    parse_json,
)
from firmwright.base.resource_limits import TENSOR_BYTES_MAX, constant_budget
from firmwright.frontends.keras import KERAS_HINT
from firmwright.frontends.pytorch.trust import check_members, check_program

SUFFIX = ".pt2"
_ZIP_MARK = b"PK\x03\x04"
_EXPANSION_MAX = 64
"""The largest ratio of a member's size to the archive's; torch does not compress."""
DTYPES: Mapping[int, str] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    10: "complex64",
    11: "complex128",
    12: "bool",
    28: "uint16",
    29: "uint32",
    30: "uint64",
}
"""The element types by their number in the archive."""
_SAVE_HINT = (
    "save it again: torch.export.save(torch.export.export(model.eval(), inputs), "
    "'model.pt2') with PyTorch 2.8 or later."
)


def is_pytorch(data: bytes, file: str = "") -> bool:
    """Detect a PyTorch program by its file name or first bytes."""
    return file.lower().endswith(SUFFIX) or (
        data[:4] == _ZIP_MARK and not file.lower().endswith((".tflite", ".onnx"))
    )


@dataclass(frozen=True, slots=True)
class ProgramArchive:
    """The decoded program (`root`, parsed JSON) and the tensors by their names."""

    root: JsonObject
    tensors: Mapping[str, Array]


def read_archive(data: bytes, file: str) -> ProgramArchive:
    """Read an archive's program; raise ModelError if it is damaged or another kind."""
    try:
        return _Archive(data, file).read()
    except NotSupportedError as error:
        raise ModelError(f"the archive has {error}.", where=file) from error
    # The classes of damage that zipfile and zlib report.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
        OverflowError,
        UnicodeError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        text = str(error) or type(error).__name__
        what = f"it is not a readable archive ({text[:80]})."
        raise ModelError.broken(what, file) from error


class _Archive:
    def __init__(self, data: bytes, file: str) -> None:
        self.file, self.limit = file, _EXPANSION_MAX * len(data)
        self.zip = zipfile.ZipFile(io.BytesIO(data))
        # Names are keys only: nothing is written to disk.
        infos = [info for info in self.zip.infolist() if not info.is_dir()]
        names = [info.filename.partition("/")[2] or info.filename for info in infos]
        self.members = dict(zip(names, infos, strict=True))
        self.names = names
        self.used = 0
        self.expanded = constant_budget()

    def read(self) -> ProgramArchive:
        programs: list[str] = []
        for member in self.members:
            if member.startswith("models/") and member.endswith(".json"):
                programs.append(member)
        if len(programs) != 1:
            raise _no_program(self.members, programs, self.file)
        check_members(self.names, self.file)
        root = self.json(programs[0])
        check_program(root, self.file)
        name = programs[0].removeprefix("models/").removesuffix(".json")
        if self.bytes("byteorder", b"little") != b"little":
            what = "the tensors of the model are big-endian."
            raise ModelError(what, where=self.file)
        tensors: dict[str, Array] = {}
        for kind, folder in (("weights", "weights"), ("constants", "constants")):
            config = f"data/{folder}/{name}_{kind}_config.json"
            rows = self.json(config)["config"] if config in self.members else {}
            for key, value in as_object(rows).items():
                row = as_object(value)
                path = f"data/{folder}/{row['path_name']}"
                tensors[key] = self.tensor(key, path, row)
        return ProgramArchive(root, tensors)

    def bytes(self, name: str, default: bytes | None = None) -> bytes:
        if name not in self.members:
            if default is not None:
                return default
            raise ModelError.broken(f"the file {name!r} is missing.", self.file)
        info = self.members[name]
        self.used += info.file_size
        if self.used > self.limit:
            what = f"its files unpack to more than {_EXPANSION_MAX} times its size."
            raise ModelError.broken(what, self.file)
        with self.zip.open(info) as stream:
            return stream.read(info.file_size)

    def json(self, name: str) -> JsonObject:
        value = parse_json(self.bytes(name).decode("utf-8"))
        if not isinstance(value, Mapping):
            raise ModelError.broken(f"{name!r} is not an object.", self.file)
        return value

    def tensor(self, key: str, path: str, row: JsonObject) -> Array:
        where = f"{self.file}: tensor {key!r}"
        if row.get("use_pickle") or not row.get("tensor_meta"):
            what = "its data are a Python object, which only torch can read."
            hint = (
                "call torchao.utils.unwrap_tensor_subclass(model) before torch.export."
            )
            raise ModelError(what, where=where, hint=hint)
        meta = as_object(row["tensor_meta"])
        dtype = DTYPES.get(as_integer(meta["dtype"]))
        if dtype is None:
            raise ModelError(f"element type {meta['dtype']} of PyTorch.", where=where)
        storage = np.frombuffer(self.bytes(path), np.dtype(dtype).newbyteorder("<"))
        sizes = list(map(_size, as_objects(meta["sizes"])))
        strides = list(map(_size, as_objects(meta["strides"])))
        offset = _size(as_object(meta["storage_offset"]))
        view = _strided(storage, sizes, strides, offset, where)
        self.expanded.spend(max(0, view.nbytes - self.members[path].file_size))
        return np.array(view, dtype=view.dtype.newbyteorder("="))


def _size(item: JsonObject) -> int:
    return as_integer(item["as_int"])


def _strided(
    storage: Array, sizes: list[int], strides: list[int], offset: int, where: str
) -> Array:
    """Return a view in the order of the tensor's axes.

    A storage may be shared or transposed.
    """
    if len(sizes) != len(strides) or min([0, offset, *sizes, *strides]) < 0:
        raise ModelError.broken("its sizes and strides contradict each other.", where)
    if math.prod(sizes) * storage.itemsize > TENSOR_BYTES_MAX:
        raise ModelError.broken(f"its sizes {sizes} are too large.", where)
    if not math.prod(sizes):
        return np.zeros(sizes, storage.dtype)
    pairs = zip(sizes, strides, strict=True)
    last = offset + sum((n - 1) * step for n, step in pairs)
    if last >= storage.size:
        raise ModelError.broken("its data are shorter than its sizes.", where)
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(
        storage[offset:], sizes, steps, writeable=False
    )


def _no_program(
    members: Mapping[str, zipfile.ZipInfo], programs: list[str], file: str
) -> ModelError:
    if programs:
        what = f"the archive has {len(programs)} programs, but one is expected."
        return ModelError(what, where=file, hint="save each program in its own file.")
    if "model.weights.h5" in members:
        return ModelError("it is a Keras model.", where=file, hint=KERAS_HINT)
    if any(name.startswith("serialized_") for name in members):
        what = "the program has the format of an old PyTorch."
        return ModelError(what, where=file, hint=_SAVE_HINT)
    if members and all(name.endswith(".npy") for name in members):
        what = "it contains arrays, not a model."
        hint = "give samples to run or verify by --input."
        raise ModelError(what, where=file, hint=hint)
    if "constants.pkl" in members:
        kind = "it is a TorchScript file"
    elif "data.pkl" in members:
        kind = "it contains weights without a program"
    else:
        kind = "it has no program"
    what = f"{kind}, not a program of torch.export."
    return ModelError(what, where=file, hint=_SAVE_HINT)
