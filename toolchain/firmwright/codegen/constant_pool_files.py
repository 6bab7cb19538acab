"""Constant pools stored outside the model's C, as data files.

Each pool yields NAME_POOL.bin and NAME_POOL.inc, the same bytes as an array initializer.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.constant_arrays import LinkedConstant
from firmwright.ir.constant_pools import (
    IMAGE_ALIGNMENT,
    UNADDRESSABLE_SCOPES,
    PoolImage,
    unlinked_pool_images,
)
from firmwright.ir.module import IRModule

_BYTES_PER_ROW = 16


@dataclass(frozen=True, slots=True)
class ConstantPoolFile:
    """A constant pool in the C interface; its two files are named `file` plus an extension."""

    image: PoolImage
    macro: str
    file: str

    @property
    def name(self) -> str:
        return self.image.pool.name

    @property
    def scope(self) -> str:
        return self.image.pool.scope

    @property
    def section(self) -> str:
        return self.image.pool.section

    @property
    def addressable(self) -> bool:
        """Return whether the user passes a pointer instead of read functions."""
        return self.scope not in UNADDRESSABLE_SCOPES

    @property
    def given_by_user(self) -> tuple[str, ...]:
        """Return the pointers to this pool in `struct NAME_workspace_pools`."""
        place = f"pools->{self.name}"
        if self.addressable:
            return (place,)
        functions = ("start", "wait") if self.scope == "async" else ("read",)
        return tuple(f"{place}.{function}" for function in functions)

    @property
    def size_bytes(self) -> int:
        return len(self.image.data)

    @property
    def alignment(self) -> int:
        return IMAGE_ALIGNMENT

    @property
    def crc32(self) -> str:
        return f"0x{zlib.crc32(self.image.data):08x}u"


@dataclass(frozen=True, slots=True)
class ConstantSymbols:
    """The C expressions that denote constants."""

    constants: Mapping[str, LinkedConstant]
    pools: tuple[ConstantPoolFile, ...]
    linked: bool

    def symbol(self, name: str, prefix: str) -> str:
        location = self.in_pool(name)
        if location is not None:
            pool, offset = location
            return f"pools->{pool.name} + {offset}" if offset else f"pools->{pool.name}"
        item = self.constants[name]
        return item.symbol if self.linked else f"params->{item.field(prefix)}"

    def in_pool(self, name: str) -> tuple[ConstantPoolFile, int] | None:
        for pool in self.pools:
            if name in pool.image.offsets:
                return pool, pool.image.offsets[name]
        return None


def find_constant_pools(module: IRModule, names: ModelNames) -> tuple[ConstantPoolFile, ...]:
    return tuple(
        ConstantPoolFile(image, names.macro(image.pool.name), f"{names.prefix}_{image.pool.name}")
        for image in unlinked_pool_images(module)
    )


def format_pool_files(pools: Iterable[ConstantPoolFile], spdx: str) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {}
    for pool in pools:
        files[f"model/{pool.file}.bin"] = pool.image.data
        files[f"model/{pool.file}.inc"] = format_initializer(pool, spdx)
    return files


def format_initializer(pool: ConstantPoolFile, spdx: str) -> str:
    data = pool.image.data
    rows = [f"/* {pool.file}.bin, {len(data)} bytes, as an array initializer.", f" * {spdx} */"]
    for start in range(0, len(data), _BYTES_PER_ROW):
        rows.append(" ".join(f"0x{b:02x}," for b in data[start : start + _BYTES_PER_ROW]))
    return "\n".join(rows) + "\n"
