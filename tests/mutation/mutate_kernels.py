"""Mutants of kernels: indices, loops, arithmetic, constants and the calls of the main.

Each is judged by the IR verifier, the C compiler, the sanitizers, and a comparison of
every layer with the reference runtime. A mutant that leaves the C or the optimized
machine code unchanged has no effect.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import Node, rewrite_func
from tests.mutation.mutants import Mutant, Outcome, drawn
from tests.mutation.reachable import same_results
from tests.mutation.search import differing
from tests.mutation.subjects import Subject, checked

Change = Callable[[Node], Node | None]
"""The mutated node, or None if the kind does not apply."""


def mutants(subject: Subject, per_kind: int) -> Iterator[Mutant]:
    """Return up to `per_kind` mutants of each kind, spread over the kernels."""
    for kind, change in CHANGES.items():
        sites = list(_sites(subject, change))
        if change is _unsaturated:  # the lower bounds in a softmax hold by construction
            sites = [site for site in sites if "softmax" not in site[0]]
        for func, place in drawn(sites, per_kind, f"{subject.name} {kind}"):
            module = partial(_planted, subject.compiled.module, func, place, change)
            site = f"{subject.name}: @{func}, site {place}"
            yield Mutant(kind, site, partial(judge, subject, module))
    for kind, make in CONSTANTS.items():
        sites = drawn(
            list(make(subject.compiled.module)), per_kind, f"{subject.name} {kind}"
        )
        for label, changed in sites:
            module = partial(_with_constants, subject.compiled.module, changed)
            yield Mutant(
                kind, f"{subject.name}: {label}", partial(judge, subject, module)
            )


def judge(subject: Subject, make: Callable[[], IRModule]) -> Outcome:
    """Apply every checker in the order in which a compilation uses them."""
    module = make()
    found = checked(subject, module)
    if not found.survived:
        return found
    tree, sound = subject.emitted(module), subject.emitted(subject.compiled.module)
    if tree == sound:
        return Outcome(same="the C is the same")
    found = subject.judged(tree)
    if not found.survived:
        return found
    reason = _same_sums(subject, module)
    if reason:
        return Outcome(same=reason)
    if _machine_code(subject, tree) == _machine_code(subject, sound):
        return Outcome(same="the machine code is the same")
    sample = differing(subject, sound, tree)
    return subject.with_sample(sample).judged(tree) if sample is not None else found


def _machine_code(subject: Subject, tree: SourceTree) -> bytes:
    tree.write(subject.folder)
    source, made = subject.folder / "model" / "mutant.c", subject.folder / "mutant.s"
    words = ["gcc", "-std=c99", "-O2", "-w", "-S", str(source), "-o", str(made)]
    subprocess.run(words, check=True)
    return made.read_bytes()


# ---- one node of one function --------------------------------------------------------


def _sites(subject: Subject, change: Change) -> Iterator[tuple[str, int]]:
    for name, func in subject.compiled.module.functions.items():
        if not isinstance(func, tir.PrimFunc):
            continue
        count = 0

        def rule(node: Node) -> None:
            nonlocal count
            count += change(node) is not None

        rewrite_func(func, rule)
        yield from ((name, place) for place in range(count))


def _planted(module: IRModule, name: str, place: int, change: Change) -> IRModule:
    """Return `module` with the function's `place`-th applicable node changed."""
    func, count = module.functions[name], 0
    assert isinstance(func, tir.PrimFunc)

    def rule(node: Node) -> Node | None:
        nonlocal count
        changed = change(node)
        count += changed is not None
        return changed if changed is not None and count == place + 1 else None

    mutant = rewrite_func(func, rule)
    # Code of several kernels is printed once: the defect must be in what is printed.
    return module.with_function(
        replace(mutant, attrs={**mutant.attrs, "code": mutant.name})
    )


def _load_index(node: Node) -> Node | None:
    if not isinstance(node, tir.BufferLoad):
        return None
    last = node.indices[-1]
    return replace(node, indices=(*node.indices[:-1], _plus(last, 1)))


def _store_index(node: Node) -> Node | None:
    if not isinstance(node, tir.BufferStore):
        return None
    first = node.indices[0]
    return replace(node, indices=(_plus(first, -1), *node.indices[1:]))


def _plus(value: Node, by: int) -> Node:
    if isinstance(value, tir.IntImm):
        return tir.IntImm(value.value + by, value.dtype)
    return tir.Binary("add", value, tir.IntImm(by, value.dtype))  # type: ignore[arg-type,union-attr]


def _loop(part: str, by: int) -> Change:
    def change(node: Node) -> Node | None:
        if not isinstance(node, tir.For) or not isinstance(
            getattr(node, part), tir.IntImm
        ):
            return None
        return replace(node, **{part: _plus(getattr(node, part), by)})

    return change


def _pointer(by: int, longer: int) -> Change:
    def change(node: Node) -> Node | None:
        if not isinstance(node, tir.AccessPtr):
            return None
        return replace(node, offset=_plus(node.offset, by), extent=node.extent + longer)

    return change


def _operator(before: str, after: str) -> Change:
    def change(node: Node) -> Node | None:
        if isinstance(node, tir.Binary) and node.op == before:
            return replace(node, op=after)
        return None

    return change


def _unsaturated(node: Node) -> Node | None:
    """Drop the lower bound of `min(max(x, low), high)` with constants."""
    if not (
        isinstance(node, tir.Binary)
        and node.op == "min"
        and isinstance(node.b, tir.IntImm)
    ):
        return None
    inner = node.a
    if (
        isinstance(inner, tir.Binary)
        and inner.op == "max"
        and isinstance(inner.b, tir.IntImm)
    ):
        return replace(node, a=inner.a)
    return None


def _shift(node: Node) -> Node | None:
    """Round by another power of two."""
    if (
        isinstance(node, tir.Binary)
        and node.op == "shr"
        and isinstance(node.b, tir.IntImm)
    ):
        return replace(node, b=_plus(node.b, -1))
    return None


def _rounding(node: Node) -> Node | None:
    """Make a right shift round up instead of down."""
    if not (
        isinstance(node, tir.Binary)
        and node.op == "shr"
        and isinstance(node.b, tir.IntImm)
    ):
        return None
    half = tir.IntImm((1 << node.b.value) - 1, node.a.dtype)
    return replace(node, a=tir.Binary("add", node.a, half))


def _without_call(node: Node) -> Node | None:
    calls = [
        part
        for part in getattr(node, "stmts", ())
        if isinstance(part, tir.PrimFuncCall)
    ]
    if not isinstance(node, tir.Seq) or not calls:
        return None
    return tir.Seq(tuple(part for part in node.stmts if part is not calls[0]))


def _swapped_arguments(node: Node) -> Node | None:
    if not isinstance(node, tir.PrimFuncCall):
        return None
    return replace(node, args=(node.args[1], node.args[0], *node.args[2:]))


def _condition(node: Node) -> Node | None:
    if not isinstance(node, tir.If):
        return None
    return node.then


def _other_constant(node: Node) -> Node | None:
    if not isinstance(node, tir.AllocateConst) or not node.constant.endswith(".bias"):
        return None
    other = {"conv2d_2": "depthwise_conv2d_4", "conv2d_5": "depthwise_conv2d_4"}
    owner = node.constant.removesuffix(".bias")
    return replace(node, constant=f"{other.get(owner, 'conv2d_2')}.bias")


CHANGES: Mapping[str, Change] = {
    "index of a load one too high": _load_index,
    "index of a store one too low": _store_index,
    "loop ends one too late": _loop("extent", 1),
    "loop ends one too early": _loop("extent", -1),
    "loop begins one too late": _loop("start", 1),
    "pointer one element too far": _pointer(1, 0),
    "pointer good for one element more": _pointer(0, 1),
    "sum turned into a difference": _operator("add", "sub"),
    "maximum turned into a minimum": _operator("max", "min"),
    "comparison includes its bound": _operator("lt", "le"),
    "saturation removed": _unsaturated,
    "shift one too small": _shift,
    "rounding up instead of down": _rounding,
    "condition dropped": _condition,
    "call dropped": _without_call,
    "arguments of a call swapped": _swapped_arguments,
    "another operator's constant": _other_constant,
}


# ---- constants -----------------------------------------------------------------------

Values = np.ndarray[Any, Any]
Site = tuple[str, dict[str, Constant]]


def _with_constants(module: IRModule, changed: Mapping[str, Constant]) -> IRModule:
    return replace(module, constants={**module.constants, **changed})


def _each(
    suffix: str, change: Callable[[Values, int], None], columns: slice = slice(None)
) -> Callable[[IRModule], list[Site]]:
    """Return elements of some columns of the constants as sites, changed singly."""

    def sites(module: IRModule) -> list[Site]:
        found: list[Site] = []
        for name, constant in module.constants.items():
            if name.endswith(suffix):
                places = np.arange(constant.array().size).reshape(constant.shape)[
                    ..., columns
                ]
                for place in map(int, places.reshape(-1)):
                    changed = _changed(constant, change, place)
                    found.append((f"{name}[{place}]", {name: changed}))
        return found

    return sites


def _changed(
    constant: Constant, change: Callable[[Values, int], None], place: int
) -> Constant:
    values = constant.array().copy()
    change(values.reshape(-1), place)
    return replace(constant, data=values.tobytes())


def _add(by: int) -> Callable[[Values, int], None]:
    def change(values: Values, place: int) -> None:
        highest = np.iinfo(values.dtype).max
        values[place] += by if values[place] < highest - by else -by

    return change


def _a_thousandth(values: Values, place: int) -> None:
    values[place] -= values[place] >> 10


def _rolled(values: Values, place: int) -> None:
    values[:] = np.roll(values, 1 + place % (values.size - 1) if values.size > 1 else 0)


def _swapped(values: Values, place: int) -> None:
    other = next((n for n, v in enumerate(values) if v != values[place]), place)
    values[[place, other]] = values[[other, place]]


def _whole(module: IRModule) -> list[Site]:
    """Return pairs of constants of one type as sites, one replacing the other."""
    found: list[Site] = []
    items = list(module.constants.items())
    for number, (name, one) in enumerate(items):
        for other_name, other in items[:number]:
            if (one.dtype, one.shape) == (
                other.dtype,
                other.shape,
            ) and one.data != other.data:
                changed = {
                    name: replace(one, data=other.data),
                    other_name: replace(other, data=one.data),
                }
                found.append((f"{name} and {other_name}", changed))
    return found


MULTIPLIER, ADDEND, SHIFT = slice(0, 1), slice(1, 2), slice(2, 3)
CONSTANTS: Mapping[str, Callable[[IRModule], list[Site]]] = {
    "bias changed by one": _each(".bias", _add(1)),
    "weight changed by one": _each(".weights", _add(1)),
    "multiplier changed by one": _each(".requant", _add(1), MULTIPLIER),
    "multiplier changed by a thousandth": _each(".requant", _a_thousandth, MULTIPLIER),
    "rounding changed by one unit": _each(".requant", _add(1), ADDEND),
    "shift changed by one": _each(".requant", _add(1), SHIFT),
    "table of a softmax shifted": _each(".exponentials", _rolled),
    "constants shifted": _each(".weights", _rolled),
    "biases shifted": _each(".bias", _rolled),
    "two weights swapped": _each(".weights", _swapped),
    "two whole constants swapped": _whole,
}


def _same_sums(subject: Subject, module: IRModule) -> str:
    """Return why changed requantization has no effect, or "" if no reason is known."""
    sound = subject.compiled.module
    changed = [
        n for n, c in module.constants.items() if sound.constants[n].data != c.data
    ]
    reasons = [
        same_results(
            subject.unplanned, subject.compiled.imported, name, module.constants[name]
        )
        for name in changed
        if name.endswith(".requant")
    ]
    return (
        reasons[0] if reasons and all(reasons) and len(reasons) == len(changed) else ""
    )
