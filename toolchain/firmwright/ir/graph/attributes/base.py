"""The base of operator attributes, and what is derived from the fields of a class.

The attributes of an operator are a frozen dataclass. Its fields are what module text
may contain: their names (a trailing underscore, as in `else_`, is not part of the name
in text), types and defaults. A field without a default is required. A string below a
field describes it; the page docs/reference/operators.md shows these descriptions.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from firmwright.base.errors import InternalError, ModelError
from firmwright.base.value_kinds import TEXT, TRUTH, Kind
from firmwright.ir.attribute_kinds import INT, NUMBER, either, list_of, row_of
from firmwright.ir.core import Attr, Attrs


@dataclass(frozen=True, slots=True, kw_only=True)
class OpAttrs:
    """The attributes of one call; an instance of this class itself has none."""


NO_ATTRS = OpAttrs()
AttrsT = TypeVar("AttrsT", bound=OpAttrs)


def typed_attrs(op: str, attrs: OpAttrs, kind: type[AttrsT]) -> AttrsT:
    """Return the attributes of a call of `op` as the class that its readers expect."""
    if not isinstance(attrs, kind):
        raise InternalError(f"{op} has {type(attrs).__name__}, not {kind.__name__}")
    return attrs


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeAttrs(OpAttrs):
    """Attributes, as read, of an operator without any; the verifier refuses them."""

    pairs: tuple[tuple[str, Attr], ...]


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute: its name in text, field, kind and, if optional, default.

    `is_real` is set if integers are accepted in place of floats.
    """

    name: str
    field: str
    kind: Kind
    is_required: bool
    default: "Attr | None"
    is_real: bool

    def converted(self, value: Attr) -> Attr:
        """Return `value` as the field holds it: integers for a float become floats."""
        return _as_floats(value) if self.is_real else value


_specs_by_class: dict[type[OpAttrs], Mapping[str, AttributeSpec]] = {}


def attribute_specs(attributes: type[OpAttrs]) -> Mapping[str, AttributeSpec]:
    """Return the attributes of a class by name in text, required ones first."""
    if attributes not in _specs_by_class:
        specs = sorted(_specs(attributes), key=lambda spec: not spec.is_required)
        _specs_by_class[attributes] = {spec.name: spec for spec in specs}
    return _specs_by_class[attributes]


def _specs(attributes: type[OpAttrs]) -> Iterator[AttributeSpec]:
    hints = get_type_hints(attributes)
    for field in fields(attributes):
        hint = hints[field.name]
        is_required = field.default is MISSING
        default: Attr | None = None
        if field.default is not MISSING:
            default = field.default
        yield AttributeSpec(
            name=field.name.removesuffix("_"),
            field=field.name,
            kind=_kind_of(hint),
            is_required=is_required,
            default=default,
            is_real=_is_real(hint),
        )


def _kind_of(hint: object) -> Kind:
    """Return the kind of values of the type `hint`; None is an absent value."""
    simple = {int: INT, bool: TRUTH, float: NUMBER, str: TEXT}
    if isinstance(hint, type) and hint in simple:
        return simple[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _kind_of_literals(args)
    if origin in (Union, types.UnionType):
        kinds = [_kind_of(arg) for arg in args if arg is not types.NoneType]
        return kinds[0] if len(kinds) == 1 else either(*kinds)
    assert origin is tuple, f"attributes have no type {hint}"
    if args[1:] == (...,):
        return list_of(_kind_of(args[0]))
    if len(set(args)) == 1:
        return list_of(_kind_of(args[0]), len(args))
    return row_of(*map(_kind_of, args))


def _kind_of_literals(choices: tuple[str | int, ...]) -> Kind:
    accepted = {(type(choice), choice) for choice in choices}  # True is not 1 here
    names = ", ".join(map(str, choices))
    return Kind(f"one of {names}", lambda value: (type(value), value) in accepted)


def _is_real(hint: object) -> bool:
    """Return whether the type holds floats and no other numbers."""
    parts = {hint} if get_origin(hint) is None else set(get_args(hint))
    return float in parts and int not in parts


def _as_floats(value: Attr) -> Attr:
    if isinstance(value, tuple):
        return tuple(map(_as_floats, value))
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer else value


def attrs_to_mapping(attrs: OpAttrs) -> dict[str, Attr]:
    """Return the attributes that text shows, by name: those that differ from defaults.

    Required attributes have no default and are always shown.
    """
    if isinstance(attrs, FreeAttrs):
        return dict(attrs.pairs)
    shown: dict[str, Attr] = {}
    for name, spec in attribute_specs(type(attrs)).items():
        value = getattr(attrs, spec.field)
        if spec.is_required or value != spec.default:
            shown[name] = value
    return shown


def make_attrs(op: str, attributes: type[OpAttrs], values: Attrs) -> OpAttrs:
    """Return the attributes of a call of `op`.

    Raises ModelError if a name is unknown, a required attribute absent or a value of
    another kind.
    """
    if not values and attributes is OpAttrs:
        return NO_ATTRS
    specs = attribute_specs(attributes)
    for name, value in values.items():
        check_attribute(op, specs, name, value)
    for name, spec in specs.items():
        if spec.is_required and name not in values:
            what = f"the attribute {name} of {op} is missing"
            raise ModelError(f"{what}, expected {spec.kind.description}.")
    by_field: dict[str, Attr] = {}
    for name, value in values.items():
        by_field[specs[name].field] = specs[name].converted(value)
    return attributes(**by_field)


def check_attrs(op: str, attrs: OpAttrs) -> None:
    """Raise ModelError if a value read from a file is not of its attribute's kind."""
    specs = attribute_specs(type(attrs))
    for name, spec in specs.items():
        value = getattr(attrs, spec.field)
        if value is not None or spec.is_required:
            check_attribute(op, specs, name, value)


def check_attribute(
    op: str, specs: Mapping[str, AttributeSpec], name: str, value: Attr
) -> None:
    """Raise ModelError if one attribute of `op` is unknown or of another kind."""
    if name not in specs:
        names = ", ".join(specs) or "no attributes"
        raise ModelError(f"{op} has no attribute {name}.", hint=f"{names}.")
    kind = specs[name].kind
    if not kind.includes(value):
        what = f"the attribute {name} of {op} is {repr(value)[:40]}"
        raise ModelError(f"{what}, expected {kind.description}.")
