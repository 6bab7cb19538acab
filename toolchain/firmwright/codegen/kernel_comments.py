"""The comment lines before each kernel in the generated C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firmwright.ir import tir

WRITTEN_ROLES = ("out", "inout")


def kernel_comment(function: tir.PrimFunc) -> Iterator[str]:
    comment = str(function.attrs.get("comment", ""))
    yield from (comment or str(function.attrs.get("op", function.name))).split("\n")
    reads = [_shape(param) for param in function.params if param.role == "in"]
    writes = [_shape(param) for param in function.params if param.role in WRITTEN_ROLES]
    yield f"{', '.join(filter(None, reads)) or 'nothing'} -> {', '.join(filter(None, writes))}"
    if function.span.file:
        yield str(function.span)
    if function.attrs.get("schedule"):
        yield f"schedule {function.attrs['schedule']}"


def shared_kernel_comment(members: Sequence[tir.PrimFunc]) -> Iterator[str]:
    yield from dict.fromkeys(str(member.attrs.get("comment", "")) for member in members)
    served = ", ".join(str(member.span.op_index) for member in members)
    yield f"Shared by operators {served}."
    if members[0].attrs.get("schedule"):
        yield f"schedule {members[0].attrs['schedule']}"


def _shape(param: tir.Param) -> str:
    if isinstance(param.value, tir.Var):
        return ""
    return f"{param.name} {param.value.dtype.name}[{', '.join(map(str, param.value.shape))}]"
