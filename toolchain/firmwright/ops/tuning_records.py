"""Tuning records: measurements of kernels, identified by digests of layers and kernels.

Digests do not depend on names or data values, so records remain valid for a retrained
network with kernels of the same form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

from firmwright.base.grouping import group_pairs
from firmwright.base.json_input import parse_json
from firmwright.ir import tir
from firmwright.ir.core import Span, Target
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.syntax import IRWriter
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.printer import print_prim
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.ops.schedule import DEFAULT_SCHEDULE, ScheduleConfig, Setting

SCHEMA = 1
_DIGITS = 24
_CONTEXT_FIELDS = ("board", "method", "compiler", "flags", "version")
_STRING_FIELDS = ("layer", "kernel", "rule", "status", "unit", "what", *_CONTEXT_FIELDS)
_STATUSES = ("ok", "wrong", "failed")

Status: TypeAlias = Literal["ok", "wrong", "failed"]
MeasurementKey: TypeAlias = "tuple[str, str, ConfiguredSchedule, MeasurementContext]"
"""Layer digest, kernel digest, configured schedule and context."""


@dataclass(frozen=True, slots=True, order=True)
class ConfiguredSchedule:
    """The name of a schedule and the settings of one configuration, sorted by name.

    This is the form of tuning logs, which may name schedules that no longer exist.
    """

    rule: str
    settings: tuple[tuple[str, Setting], ...] = ()

    @staticmethod
    def from_settings(rule: str, settings: Mapping[str, Setting]) -> ConfiguredSchedule:
        return ConfiguredSchedule(rule, tuple(sorted(settings.items())))


DEFAULT_CHOICE = ConfiguredSchedule(DEFAULT_SCHEDULE)
"""An operator's default loops."""


def configured_schedule(rule: str, config: ScheduleConfig) -> ConfiguredSchedule:
    """Return the form that tuning logs have of a schedule and its configuration."""
    return ConfiguredSchedule.from_settings(rule, config.settings())


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """The conditions that affect a measured count. `method` is `exact` or `timer`."""

    board: str
    method: str
    compiler: str
    flags: str
    version: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of a kernel: one line of the tuning log.

    `status` `wrong` marks a kernel that differs from the reference, `failed` one that
    did not build, fit or terminate; `count` is 0 for both. `what` describes the layer
    for readers of the log.
    """

    layer: str
    kernel: str
    choice: ConfiguredSchedule
    status: Status
    count: int
    unit: str
    what: str
    at: MeasurementContext

    @property
    def key(self) -> MeasurementKey:
        return self.layer, self.kernel, self.choice, self.at

    def line(self) -> str:
        """Return the record as one line of JSON, identical on every machine."""
        data = {
            "schema": SCHEMA,
            "layer": self.layer,
            "kernel": self.kernel,
            "what": self.what,
            "rule": self.choice.rule,
            "config": dict(self.choice.settings),
            "status": self.status,
            "count": self.count,
            "unit": self.unit,
            **asdict(self.at),
        }
        return json.dumps(data)


def parse_measurement(text: str) -> Measurement | None:
    """Parse a line of a log; return None if its format is not supported."""
    try:
        data = parse_json(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return None
    if not _is_valid(data):
        return None
    return Measurement(
        layer=data["layer"],
        kernel=data["kernel"],
        choice=ConfiguredSchedule.from_settings(data["rule"], data["config"]),
        status=data["status"],
        count=data["count"],
        unit=data["unit"],
        what=data["what"],
        at=MeasurementContext(*(data[name] for name in _CONTEXT_FIELDS)),
    )


def _is_valid(data: Mapping[str, object]) -> bool:
    config = data.get("config")
    count = data.get("count")
    for name in _STRING_FIELDS:
        if not isinstance(data.get(name), str):
            return False
    if data["status"] not in _STATUSES or type(count) is not int or count < 0:
        return False
    if not isinstance(config, dict):
        return False
    return all(type(value) in (int, str) for value in config.values())


def layer_digest(call: OpCall, target: Target) -> str:
    """Return a hash of a layer's operator, attributes, tensors, numerics and target.

    Only the granularity of the quantization is included.
    """
    inputs: list[list[object] | None] = []
    for index, kind in enumerate(call.inputs):
        if kind is None:
            inputs.append(None)
        else:
            is_constant = call.constant(index) is not None
            inputs.append([*_structure(kind), is_constant])
    data = {
        "op": call.op,
        "attrs": attrs_to_mapping(call.attrs),
        "inputs": inputs,
        "outputs": [_structure(kind) for kind in call.outputs],
        "numerics": call.numerics,
        "target": str(target),
    }
    return _digest(json.dumps(data, sort_keys=True))


def kernel_digest(function: tir.PrimFunc) -> str:
    """Return a hash of a kernel's code without its names and data values."""

    def rule(node: Node) -> Node | None:
        match node:
            case tir.IntImm(dtype=dtype) if dtype != INDEX:
                return tir.IntImm(0, dtype)
            case tir.AllocateConst(constant=name):
                return replace(node, constant=name.rpartition(".")[2])
            case _:
                return None

    page = IRWriter()
    bare = replace(rewrite_func(function, rule), name="kernel", attrs={}, span=Span(""))
    print_prim(bare, page)
    return _digest(page.text())


def _structure(kind: TensorType) -> list[object]:
    granularity = "none"
    if kind.quantization is not None:
        granularity = "tensor" if len(kind.quantization.scales) == 1 else "channel"
    return [list(kind.shape), kind.dtype.name, granularity]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class TuningRecords:
    """Measurements by layer, with a `digest` that does not depend on their order.

    The digest of no measurements is "".
    """

    layers: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)
    digest: str = ""

    @staticmethod
    def from_measurements(measurements: Iterable[Measurement]) -> TuningRecords:
        """Index `measurements`; order and duplicates do not matter."""
        unique = {item.line(): item for item in measurements}
        lines = sorted(unique)
        groups = group_pairs((unique[line].layer, unique[line]) for line in lines)
        layers = {name: tuple(items) for name, items in groups.items()}
        digest = _digest("\n".join(lines)) if unique else ""
        return TuningRecords(layers, digest)

    def measurements_for_layer(self, layer: str, board: str) -> tuple[Measurement, ...]:
        """Return the measurements of a layer that share one unit and context.

        Measurements on `board` are preferred, then cycles, then the context with the
        most measurements.
        """
        measurements = self.layers.get(layer, ())
        groups = group_pairs(((item.unit, item.at), item) for item in measurements)

        def rank(key: tuple[str, MeasurementContext]) -> tuple[bool, bool, int, str]:
            unit, at = key
            size = len(groups[key])
            return at.board != board, unit != "cycles", -size, f"{unit} {at}"

        best = min(groups, key=rank, default=None)
        return () if best is None else tuple(groups[best])


NO_TUNING_RECORDS = TuningRecords()
