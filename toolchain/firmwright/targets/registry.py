"""The table of target kinds; written form to `Target` and back to features."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from firmwright.base.errors import UsageError
from firmwright.ir.core import Target
from firmwright.targets import cortex_m, generic
from firmwright.targets.kind import AttrSpec, TargetKind

KINDS: Mapping[str, TargetKind] = {
    kind.name: kind for kind in (generic.HOST, generic.C, cortex_m.KIND, generic.RISCV32)
}


def kind_of(target: Target) -> TargetKind:
    """The kind a target is an instance of."""
    if target.kind not in KINDS:
        raise UsageError(
            f"there is no target kind {target.kind!r}.", hint=_nearest(target.kind, KINDS)
        )
    return KINDS[target.kind]


def features(target: Target) -> frozenset[str]:
    """What rules and intrinsics may require of `target`."""
    return kind_of(target).features(target)


def parse_target(text: str) -> Target:
    """`kind -name=value -flag ...` as a validated target; defaults are filled in."""
    words = text.split()
    if not words:
        raise UsageError("the target is empty.", hint="--target 'cortex-m -mcpu=cortex-m4'.")
    kind = kind_of(Target(words[0]))
    attrs = {name: spec.default for name, spec in kind.attrs.items()}
    for word in words[1:]:
        name, equals, value = word.lstrip("-").partition("=")
        if name not in kind.attrs:
            known = ", ".join(kind.attrs) or "it has none"
            raise UsageError(
                f"target {kind.name} has no attribute {name!r} (known: {known}).",
                hint=_nearest(name, kind.attrs),
            )
        attrs[name] = _checked(kind, name, kind.attrs[name], value if equals else "true")
    return Target(kind.name, tuple(sorted(attrs.items())))


def _checked(kind: TargetKind, name: str, spec: AttrSpec, value: str) -> int | bool | str:
    if isinstance(spec.default, bool):
        if value not in ("true", "false"):
            raise UsageError(f"target {kind.name}: {name} is true or false, not {value!r}.")
        return value == "true"
    if isinstance(spec.default, int):
        if not value.lstrip("-").isdigit():
            raise UsageError(f"target {kind.name}: {name} is a number, not {value!r}.")
        return int(value)
    if spec.choices and value not in spec.choices:
        raise UsageError(
            f"target {kind.name}: {name} cannot be {value!r}.",
            hint=f"{_nearest(value, spec.choices)} (known: {', '.join(spec.choices)}).",
        )
    return value


def _nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.0)
    return close[0] if close else "no attribute at all"
