"""The code of a kernel: its body below the constants that it links.

    AllocateConst weights, "conv2d_3.weights":
      AllocateConst bias, "conv2d_3.bias":
        for ...                                  <- the code

Kernels of equal layers differ only in the names of constants, and lowering gives them
one code. So what is known of a code is found by its identity, at no cost.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from firmwright.ir import tir
from firmwright.ir.tir.traversal import with_body


def code_of(body: tir.Stmt) -> tir.Stmt:
    """Return the statement below the constants that a kernel's body links first."""
    while isinstance(body, tir.AllocateConst):
        body = body.body
    return body


def constant_links(body: tir.Stmt) -> tuple[tir.AllocateConst, ...]:
    """Return the statements that link a body's first constants, outermost first."""
    links: list[tir.AllocateConst] = []
    while isinstance(body, tir.AllocateConst):
        links.append(body)
        body = body.body
    return tuple(links)


def with_code(body: tir.Stmt, code: tir.Stmt) -> tir.Stmt:
    """Return `body` with `code` below the constants that it links first."""
    if code_of(body) is code:
        return body
    for link in reversed(constant_links(body)):
        code = tir.AllocateConst(link.buffer, link.constant, code)
    return code


def code_identity(func: tir.PrimFunc) -> tuple[Hashable, ...]:
    """Return a key of what `func` computes, except for attributes and constants.

    Codes are compared by identity: the caller keeps `func`, so that no other code gets
    its identity.
    """
    buffers = tuple(link.buffer for link in constant_links(func.body))
    return id(code_of(func.body)), func.params, buffers


@dataclass(frozen=True, slots=True)
class OncePerCode:
    """A transformation of PrimFuncs that transforms functions of one code once.

    `change` must not depend on names of functions and constants, nor on attributes.
    """

    change: Callable[[tir.PrimFunc], tir.PrimFunc]
    _changed: dict[Hashable, tuple[tir.PrimFunc, tir.PrimFunc]] = field(
        default_factory=dict
    )

    def __call__(self, func: tir.PrimFunc) -> tir.PrimFunc:
        key = code_identity(func)
        if key not in self._changed:
            self._changed[key] = func, self.change(func)
        first, changed = self._changed[key]
        if changed is first:
            return func
        code = code_of(changed.body)
        names = {link.buffer.name: link.constant for link in constant_links(func.body)}
        for link in reversed(constant_links(changed.body)):
            code = tir.AllocateConst(link.buffer, names[link.buffer.name], code)
        return with_body(func, code)
