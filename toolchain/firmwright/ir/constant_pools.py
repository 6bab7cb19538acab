"""Where constants lie in memory that the program's image does not hold.

In: a module whose constants name their pools. Out: the image of a pool: its constants one behind
the other, in the order of the module's table, each at a multiple of `IMAGE_ALIGNMENT`. The pool's
file, the offsets in generated C and the sizes in reports all come from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.base.errors import InternalError
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule

IMAGE_ALIGNMENT = 16
UNLINKED_SCOPES = ("external", "port", "async")
"""Scopes of read-only pools whose bytes are no part of the program's image."""
UNADDRESSABLE_SCOPES = ("port", "async")
"""Those that the core cannot address: constants are read into RAM before they are used."""


@dataclass(frozen=True, slots=True)
class PoolImage:
    """The bytes of a read-only pool, and the offset of each constant in them."""

    pool: PoolInfo
    data: bytes
    offsets: Mapping[str, int]


def constant_pools(module: IRModule) -> tuple[PoolInfo, ...]:
    """The read-only pools, in the order in which constants are to fill them."""
    return tuple(pool for pool in module.pools if pool.access == "ro")


def pool_of_constant(module: IRModule, constant: str) -> PoolInfo | None:
    """The read-only pool that holds `constant`; None: the program's own memory does."""
    name = module.constants[constant].pool
    if not name:
        return None
    for pool in constant_pools(module):
        if pool.name == name:
            return pool
    raise InternalError(f"constant {constant} lies in the pool {name}, which is none for constants")


def is_linked(module: IRModule, constant: str) -> bool:
    """Whether the program's image holds `constant`."""
    pool = pool_of_constant(module, constant)
    return pool is None or pool.scope not in UNLINKED_SCOPES


def build_pool_image(module: IRModule, pool: PoolInfo) -> PoolImage:
    """What `pool` has to contain."""
    offsets: dict[str, int] = {}
    data = bytearray()
    for name, constant in module.constants.items():
        if constant.pool == pool.name:
            data += bytes(-len(data) % IMAGE_ALIGNMENT)
            offsets[name] = len(data)
            data += constant.data
    return PoolImage(pool, bytes(data), offsets)


def unlinked_pool_images(module: IRModule) -> tuple[PoolImage, ...]:
    """The images of the pools in use that the program's image does not hold."""
    images = (
        build_pool_image(module, p) for p in constant_pools(module) if p.scope in UNLINKED_SCOPES
    )
    return tuple(image for image in images if image.data)
