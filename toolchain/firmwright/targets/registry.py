"""Target kinds by name, and the text and JSON forms of targets.

A target is written `kind -name=value -flag`. Core kinds are defined here; other names
are looked up in backend_registry.py.
"""

import json
from collections.abc import Iterable, Sequence

from firmwright.base.errors import UsageError
from firmwright.base.json_input import Json, parse_json
from firmwright.base.suggestions import suggest_name
from firmwright.ir.core import Target
from firmwright.targets.backend import Backend
from firmwright.targets.backend_calls import supported_features
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.cores import CORE_KINDS
from firmwright.targets.target_kind import TargetAttribute, TargetKind


def target_kind_of(target: Target) -> TargetKind:
    """Return the kind of a target; raise UsageError for an unknown one."""
    core = CORE_KINDS.get(target.kind)
    if core is not None:
        return core
    backend = backend_of(target)
    if backend is None:
        kinds = [*CORE_KINDS, *BACKENDS.all()]
        what = f"unknown target kind {target.kind!r}."
        likely = suggest_name(target.kind, kinds)
        hint = f"{likely}, or install the package of that backend."
        raise UsageError(what, hint=hint)
    return backend.kind


def backend_of(target: Target) -> Backend | None:
    """Return the backend of a target; None for cores."""
    return None if target.kind in CORE_KINDS else BACKENDS.find(target.kind)


def target_features(target: Target) -> frozenset[str]:
    """Return the features of `target` that schedules and intrinsics may require."""
    core = CORE_KINDS.get(target.kind)
    if core is not None:
        return core.features(target)
    return supported_features(target_kind_of(target), target)


def features_of_known(targets: Iterable[Target]) -> frozenset[str]:
    """Return the features of the targets together.

    A saved module may name a backend that is not installed, and has no calls left to
    lower for it.
    """
    features: set[str] = set()
    for target in targets:
        if target.kind in CORE_KINDS or backend_of(target) is not None:
            features |= target_features(target)
    return frozenset(features)


def parse_targets(text: str, known: Sequence[Target] = ()) -> tuple[Target, ...]:
    """Parse targets such as `a,b -x=1`, or a JSON array of objects.

    Missing attributes are those of a target of the kind in `known`, or the defaults.
    """
    if text.lstrip().startswith(("[", "{")):
        parsed = _json(text)
        items = parsed if isinstance(parsed, list) else [parsed]
        return tuple(target_from_json(item, known) for item in items)
    return tuple(parse_target(part, known) for part in text.split(","))


def parse_target(text: str, known: Sequence[Target] = ()) -> Target:
    """Parse one target, `kind -name=value -flag ...` or JSON."""
    if text.lstrip().startswith("{"):
        return target_from_json(_json(text), known)
    words = text.split()
    if not words:
        hint = "--target 'cortex-m -mcpu=cortex-m4'."
        raise UsageError("the target is empty.", hint=hint)
    kind = target_kind_of(Target(words[0]))
    attrs = _missing_attrs(kind, known)
    for word in words[1:]:
        name, equals, value = word.lstrip("-").partition("=")
        spec = _spec(kind, name)
        attrs[name] = _checked(kind, name, spec, value if equals else "true")
    return Target(kind.name, tuple(sorted(attrs.items())))


def _missing_attrs(
    kind: TargetKind, known: Sequence[Target]
) -> dict[str, int | bool | str]:
    attrs: dict[str, int | bool | str] = {}
    for name, spec in kind.attrs.items():
        if spec.default != "":
            attrs[name] = spec.default
    for target in known:
        if target.kind == kind.name:
            return attrs | dict(target.attrs)
    return attrs


def _checked(
    kind: TargetKind, name: str, spec: TargetAttribute, value: str
) -> int | bool | str:
    if isinstance(spec.default, bool):
        if value not in ("true", "false"):
            what = f"target {kind.name}: {name} is true or false, not {value!r}."
            raise UsageError(what)
        return value == "true"
    if isinstance(spec.default, int):
        if not value.lstrip("-").isdigit():
            raise UsageError(f"target {kind.name}: {name} is a number, not {value!r}.")
        return int(value)
    if spec.choices and value not in spec.choices:
        what = f"target {kind.name}: {name} cannot be {value!r}."
        raise UsageError(what, hint=f"one of {', '.join(spec.choices)}.")
    return value


def check_target(target: Target, kind: TargetKind) -> None:
    """Raise UsageError if an attribute of the target is unknown, or not of its kind."""
    for name, value in target.attrs:
        spec = _spec(kind, name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if _checked(kind, name, spec, text) != value:
            raise UsageError(f"target {kind.name}: {name} cannot be {value!r}.")


def _spec(kind: TargetKind, name: str) -> TargetAttribute:
    if name not in kind.attrs:
        names = ", ".join(kind.attrs) or "it has none"
        what = f"target {kind.name} has no attribute {name!r} (known: {names})."
        hint = suggest_name(name, kind.attrs) or "no attribute at all"
        raise UsageError(what, hint=hint)
    return kind.attrs[name]


def target_to_json(target: Target) -> dict[str, object]:
    """Return `{"kind": ..., "attrs": {...}}`, which `parse_target` accepts as text."""
    return {"kind": target.kind, "attrs": dict(target.attrs)}


def target_from_json(data: Json, known: Sequence[Target] = ()) -> Target:
    """Check and return the target of a JSON object."""
    known_keys = {"kind", "attrs"}
    if not isinstance(data, dict) or set(data) - known_keys or "kind" not in data:
        what = f"the target {json.dumps(data)} is not an object with kind and attrs."
        hint = '{"kind": "cortex-m", "attrs": {"mcpu": "cortex-m4"}}.'
        raise UsageError(what, hint=hint)
    kind = target_kind_of(Target(str(data["kind"])))
    attrs_data = data.get("attrs", {})
    if not isinstance(attrs_data, dict):
        shown = json.dumps(attrs_data)
        raise UsageError(f"target {kind.name}: attrs are an object, not {shown}.")
    attrs = _missing_attrs(kind, known)
    for name, value in attrs_data.items():
        spec = _spec(kind, name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        attrs[name] = _checked(kind, name, spec, text)
    return Target(kind.name, tuple(sorted(attrs.items())))


def _json(text: str) -> Json:
    try:
        return parse_json(text)
    except ValueError as error:
        what = f"the target is not valid JSON: {error}."
        raise UsageError(what, where=text) from error
