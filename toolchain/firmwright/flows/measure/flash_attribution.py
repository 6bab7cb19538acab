"""Divides the code and the constants of an image among the operators of a model."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from firmwright.artifacts import Image
from firmwright.base.grouping import group_pairs
from firmwright.compilation_summary import ConstantSummary
from firmwright.ir.tir.traversal import prim_calls
from firmwright.pipeline import Compilation

_OWNER = re.compile(r"^.+?_(\d+)(?:_rows?\d*)?$")
"""The names of kernels and constants end with the number of their operator."""


def code_bytes_by_operator(compiled: Compilation, image: Image) -> Counter[int]:
    """Return the code bytes by operator; those of shared kernels are divided."""
    prefix = f"{compiled.c_prefix}_"
    operators = compiled.summary.operators
    users = group_pairs((operator.kernel, operator.index) for operator in operators)
    bytes_by_operator: Counter[int] = Counter()
    for symbol in image.sizes.symbols:
        if symbol.kind == "text" and symbol.name.startswith(prefix):
            # gcc may split a function into parts, of which one is called NAME.part.0.
            kernel, _, _ = symbol.name.removeprefix(prefix).partition(".")
            bytes_by_operator += _divide(symbol.size_bytes, _owners(kernel, users))
    return bytes_by_operator


def constant_bytes_by_operator(compiled: Compilation) -> Counter[int]:
    """Return the constants' bytes by operator; those of shared kernels are divided."""
    bytes_by_operator: Counter[int] = Counter()
    for constant, owners in _owned_constants(compiled):
        bytes_by_operator += _divide(constant.size_bytes, owners)
    return bytes_by_operator


def constants_by_operator(compiled: Compilation) -> dict[int, list[ConstantSummary]]:
    """Return the constants that each operator reads."""
    return group_pairs(
        (owner, constant)
        for constant, owners in _owned_constants(compiled)
        for owner in owners
    )


def _owned_constants(
    compiled: Compilation,
) -> list[tuple[ConstantSummary, Sequence[int]]]:
    users: dict[str, list[int]] = {}
    for call in prim_calls(compiled.module.aot_main.body):
        if call.op >= 0 and call.phase != "wait":
            users.setdefault(call.callee, []).append(call.op)
    owned: list[tuple[ConstantSummary, Sequence[int]]] = []
    for constant in compiled.summary.constants:
        kernel = constant.name.rpartition(".")[0]
        owned.append((constant, _owners(kernel, users)))
    return owned


def _owners(kernel: str, users: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """Return the operators that call `kernel`, or the operator in its name."""
    if users.get(kernel):
        return users[kernel]
    owner = _OWNER.match(kernel)
    return [int(owner[1])] if owner else []


def _divide(size_bytes: int, owners: Sequence[int]) -> Counter[int]:
    if not owners:
        return Counter()
    share, rest = divmod(size_bytes, len(owners))
    shares: Counter[int] = Counter(dict.fromkeys(owners, share))
    # The first operators get a byte more, so that the sum is exact.
    shares.update(owners[:rest])
    return shares
