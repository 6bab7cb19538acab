"""Layout of constants in read-only pools that are not part of the program image.

Pools outside the image end in a hash of the code that reads them, checked by the
model's C, so that constants of a retrained model suit a program in use.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.base.errors import InternalError
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.syntax import IRWriter
from firmwright.ir.tir.printer import print_prim

IMAGE_ALIGNMENT = 16
_HASH_BYTES = 16
UNLINKED_SCOPES = ("external", "port", "async")
"""Scopes of read-only pools whose bytes are not part of the program image."""
UNADDRESSABLE_SCOPES = ("port", "async")
"""Scopes that the core cannot address; constants are copied to RAM before use."""


@dataclass(frozen=True, slots=True)
class PoolImage:
    """The bytes of a read-only pool and the byte offset of each constant."""

    pool: PoolInfo
    data: bytes
    offsets: Mapping[str, int]


def constant_pools(module: IRModule) -> tuple[PoolInfo, ...]:
    return tuple(pool for pool in module.pools if pool.access == "ro")


def pool_of_constant(module: IRModule, constant: str) -> PoolInfo | None:
    """Return the read-only pool of `constant`; None if the program image holds it."""
    name = module.constants[constant].pool
    if not name:
        return None
    for pool in constant_pools(module):
        if pool.name == name:
            return pool
    raise InternalError(
        f"constant {constant} is in pool {name}, which is not a constant pool"
    )


def is_linked(module: IRModule, constant: str) -> bool:
    pool = pool_of_constant(module, constant)
    return pool is None or pool.scope not in UNLINKED_SCOPES


def build_pool_image(module: IRModule, pool: PoolInfo) -> PoolImage:
    image = _pool_contents(module, pool)
    if image.data and pool.scope in UNLINKED_SCOPES:
        padding = bytes(-len(image.data) % IMAGE_ALIGNMENT)
        return PoolImage(pool, image.data + padding + _hash_code(module), image.offsets)
    return image


def pool_image_bytes(module: IRModule, pool: PoolInfo) -> int:
    """Return the size of the pool's image without computing its hash."""
    size = len(_pool_contents(module, pool).data)
    hashed = hash_bytes(pool) if size else 0
    padding = -size % IMAGE_ALIGNMENT if hashed else 0
    return size + padding + hashed


def _pool_contents(module: IRModule, pool: PoolInfo) -> PoolImage:
    offsets: dict[str, int] = {}
    data = bytearray()
    for name, constant in module.constants.items():
        if constant.pool == pool.name:
            data += bytes(-len(data) % IMAGE_ALIGNMENT)
            offsets[name] = len(data)
            data += constant.data
    return PoolImage(pool, bytes(data), offsets)


def _hash_code(module: IRModule) -> bytes:
    """Return a hash of the code and the linked constants.

    It does not cover the names of model and file, nor the values of unlinked constants.
    """
    page = IRWriter()
    for name, constant in module.constants.items():
        content = constant.digest if is_linked(module, name) else constant.pool
        page.line(f"{constant.dtype.short} {constant.shape} {content}")
    for path, file in module.files.items():
        page.line(f"{path} {hashlib.sha256(file).hexdigest()}")
    for function in module.functions.values():
        if not isinstance(function, Function):
            print_prim(function, page, spans=False)
    return hashlib.sha256(page.text().encode()).digest()[:_HASH_BYTES]


def hash_bytes(pool: PoolInfo) -> int:
    return _HASH_BYTES if pool.scope in UNLINKED_SCOPES else 0


def with_content_hash(data: bytes) -> bytes:
    data += bytes(-len(data) % IMAGE_ALIGNMENT)
    return data + hashlib.sha256(data).digest()[:_HASH_BYTES]


def unlinked_pool_images(module: IRModule) -> tuple[PoolImage, ...]:
    images: list[PoolImage] = []
    for pool in constant_pools(module):
        if pool.scope not in UNLINKED_SCOPES:
            continue
        image = build_pool_image(module, pool)
        if image.data:
            images.append(image)
    return tuple(images)
