"""Constant pools outside the model's C, as NAME_POOL.bin and as initializers (.inc)."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.codegen.c_names import ModelNames
from firmwright.ir.constant_pools import UNADDRESSABLE_SCOPES, unlinked_pool_images
from firmwright.ir.module import IRModule

_BYTES_PER_ROW = 16


@dataclass(frozen=True, slots=True)
class ConstantPoolFile:
    """A constant pool in two files called `file`; `offsets` has its constants."""

    name: str
    scope: str
    section: str
    macro: str
    file: str
    data: bytes
    offsets: Mapping[str, int]

    @property
    def addressable(self) -> bool:
        """Whether the user passes a pointer instead of read functions."""
        return self.scope not in UNADDRESSABLE_SCOPES

    @property
    def given_by_user(self) -> tuple[str, ...]:
        """The members of `struct NAME_workspace_pools` that the user sets."""
        place = f"pools->{self.name}"
        if self.addressable:
            return (place,)
        functions = ("start", "wait") if self.scope == "async" else ("read",)
        return tuple(f"{place}.{function}" for function in functions)

    @property
    def crc32(self) -> str:
        return f"0x{zlib.crc32(self.data):08x}u"


def find_constant_pools(
    module: IRModule, names: ModelNames
) -> tuple[ConstantPoolFile, ...]:
    files: list[ConstantPoolFile] = []
    for image in unlinked_pool_images(module):
        pool = image.pool
        pool_file = ConstantPoolFile(
            name=pool.name,
            scope=pool.scope,
            section=pool.section,
            macro=names.macro(pool.name),
            file=f"{names.prefix}_{pool.name}",
            data=image.data,
            offsets=image.offsets,
        )
        files.append(pool_file)
    return tuple(files)


def format_data_files(file: str, data: bytes, spdx: str) -> dict[str, str | bytes]:
    """Return model/FILE.bin, and model/FILE.inc with its bytes as initializer."""
    rows = [
        f"/* {file}.bin, {len(data)} bytes, as an array initializer.",
        f" * {spdx} */",
    ]
    for start in range(0, len(data), _BYTES_PER_ROW):
        part = data[start : start + _BYTES_PER_ROW]
        rows.append(" ".join(f"0x{byte:02x}," for byte in part))
    return {f"model/{file}.bin": data, f"model/{file}.inc": "\n".join(rows) + "\n"}
