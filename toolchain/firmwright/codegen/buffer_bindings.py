"""The C variables to which buffers are bound while a function is printed."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.ir import tir


@dataclass(frozen=True, slots=True)
class MemoryBinding:
    """A buffer bound to a C pointer.

    A `plain` pointer refers to an array of its own type and needs no alias type. An `unaligned`
    byte pointer may have any address and is accessed through load and store helpers.
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


BufferBinding = MemoryBinding | RegisterBinding
