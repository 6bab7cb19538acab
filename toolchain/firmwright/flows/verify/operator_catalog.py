"""The supported operators: names in other formats, types, limits and schedules."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from firmwright.conformance.case_tables import EMULATED_BOARDS, conformance_cases
from firmwright.flows.verify.operator_names import listed_operators, tflite_names
from firmwright.ir.core import Attr
from firmwright.ir.graph.attributes import attributes_class
from firmwright.ir.graph.attributes.base import attribute_specs
from firmwright.ir.graph.attributes.descriptions import attribute_descriptions
from firmwright.ops.opdef import OpDef, OpTable
from firmwright.ops.schedule import Schedule, ScheduleConfig


@dataclass(frozen=True, slots=True)
class SupportedAttribute:
    """An attribute with its kind, default (None if it is required) and meaning."""

    name: str
    kind: str
    default: "Attr | None"
    is_required: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class SupportedOperator:
    """An operator with its schedules' names, and the boards on which its cases run.

    `source` is the path of the Python module that defines it, below the package's
    folder, and `semantics` the docstring of that module, which several may share.
    """

    name: str
    tflite: tuple[str, ...]
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    attributes: tuple[SupportedAttribute, ...]
    dtypes: tuple[str, ...]
    numerics: tuple[str, ...]
    schedules: tuple[str, ...]
    limits: str
    cases: int
    boards: tuple[str, ...]
    source: str
    semantics: str


def supported_operators(
    ops: OpTable, rules: Sequence[Schedule[ScheduleConfig]]
) -> list[SupportedOperator]:
    """Return all operators except `custom`, in order of their names."""
    return [_operator(opdef, rules) for opdef in listed_operators(ops)]


def _operator(
    opdef: OpDef, rules: Sequence[Schedule[ScheduleConfig]]
) -> SupportedOperator:
    cases = sum(1 for _ in conformance_cases(opdef.name))
    schedules = [rule.name for rule in rules if rule.op == opdef.name]
    return SupportedOperator(
        name=opdef.name,
        tflite=tflite_names(opdef.name),
        inputs=opdef.inputs,
        results=opdef.results,
        attributes=_attributes(opdef.name),
        dtypes=opdef.dtypes,
        numerics=opdef.profiles,
        schedules=tuple(dict.fromkeys(schedules)),
        limits=opdef.restrictions,
        cases=cases,
        boards=EMULATED_BOARDS if cases else (),
        source="/".join(opdef.module.split(".")[1:]) + ".py",
        semantics=inspect.getdoc(import_module(opdef.module)) or "",
    )


def _attributes(op: str) -> tuple[SupportedAttribute, ...]:
    attributes = attributes_class(op)
    meanings = attribute_descriptions(attributes)
    supported: list[SupportedAttribute] = []
    for spec in attribute_specs(attributes).values():
        attribute = SupportedAttribute(
            name=spec.name,
            kind=spec.kind.description,
            default=spec.default,
            is_required=spec.is_required,
            meaning=meanings[spec.field],
        )
        supported.append(attribute)
    return tuple(supported)
