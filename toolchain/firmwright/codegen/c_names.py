"""Names in generated C: those derived from the model's, of locals, and of buffers."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from firmwright.base.c_identifiers import is_identifier, to_c_identifier
from firmwright.base.dtypes import DType
from firmwright.ir import tir

_ODD = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class ModelNames:
    """The C names of one model; `prefix` is a C identifier."""

    prefix: str

    def c(self, name: str) -> str:
        return _ODD.sub("_", f"{self.prefix}_{name}")

    def macro(self, *words: str) -> str:
        return self.c("_".join(words)).upper()

    def alias(self, dtype: DType) -> str:
        """Return the type through which pool memory is accessed as `dtype`."""
        return f"{self.prefix}_{dtype.short}"


class LocalScope:
    """Unique local names in one function, so that no declaration shadows another."""

    __slots__ = ("_blocks",)

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._blocks: list[set[str]] = [set(reserved)]

    @contextmanager
    def block(self) -> Iterator[None]:
        """Open a block; names declared inside become available again afterwards."""
        self._blocks.append(set())
        yield
        self._blocks.pop()

    def unique(self, name: str) -> str:
        """Return `name`, with a number appended if an open block already uses it."""
        plain = name if is_identifier(name) else to_c_identifier(name)
        candidate, count = plain, 0
        while any(candidate in block for block in self._blocks):
            count += 1
            candidate = f"{plain}_{count}"
        self._blocks[-1].add(candidate)
        return candidate


@dataclass(frozen=True, slots=True)
class PointerBinding:
    """A buffer bound to a C pointer.

    A `plain` pointer refers to an array of its own type and needs no alias type. An
    `unaligned` byte pointer may have any address and is accessed through load and store
    helpers.
    """

    name: str
    buffer: tir.Buffer
    plain: bool = False
    unaligned: bool = False


@dataclass(frozen=True, slots=True)
class RegisterBinding:
    """A buffer of scope `reg`, bound to one C scalar per element."""

    names: tuple[str, ...]
    buffer: tir.Buffer


BufferBinding = PointerBinding | RegisterBinding
