"""What measurements say of kernels: the records of a tuning log, and what layers are known by.

In: measurements, and calls and kernels as lowering has them. Out: records as JSON lines, digests,
and for a layer those records that may be compared with each other. A layer is known by its
structure (`layer_digest`), a kernel by its code without the values of its data (`kernel_digest`):
neither depends on names, and a network that was trained again finds its layers as long as its
kernels have the same form. Nothing here reads files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from firmwright.base.json_input import parse_json
from firmwright.ir import tir
from firmwright.ir.core import Attr, Span, Target
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.syntax import IRWriter
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.printer import print_prim
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.schedule import Config
from firmwright.ir.tir.traversal import Node

SCHEMA = 1
_DIGITS = 24
_CONTEXT_FIELDS = ("board", "method", "compiler", "flags", "version")
_STRING_FIELDS = ("layer", "kernel", "rule", "status", "unit", "what", *_CONTEXT_FIELDS)
_STATUSES = ("ok", "wrong", "failed")

Status: TypeAlias = Literal["ok", "wrong", "failed"]
ConfiguredSchedule: TypeAlias = tuple[str, tuple[tuple[str, int | str], ...]]
"""A rule's name and its configuration, sorted."""
MeasurementKey: TypeAlias = "tuple[str, str, ConfiguredSchedule, MeasurementContext]"
"""Digests of layer and kernel, choice, circumstances."""


def configured_schedule(rule: str, config: Config) -> ConfiguredSchedule:
    """That rule in that configuration, as a key."""
    return rule, tuple(sorted(config.items()))


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """What a count depends on beside the kernel. `method` is exact or timer."""

    board: str
    method: str
    compiler: str
    flags: str
    version: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One kernel, measured once: a line of the log.

    A `wrong` kernel differs from the reference, a `failed` one did not build, fit or end; `count`
    is 0 for both. `what` tells a reader which layer it was; nothing else depends on it.
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
        """What need not be measured again."""
        return self.layer, self.kernel, self.choice, self.at

    def line(self) -> str:
        """As JSON, the same text on every machine."""
        rule, config = self.choice
        data = {
            "schema": SCHEMA,
            "layer": self.layer,
            "kernel": self.kernel,
            "what": self.what,
            "rule": rule,
            "config": dict(config),
            "status": self.status,
            "count": self.count,
            "unit": self.unit,
            **asdict(self.at),
        }
        return json.dumps(data)


def parse_measurement(text: str) -> Measurement | None:
    """The measurement in a line of a log; None where it is none that this version knows."""
    try:
        data = parse_json(text)
    except ValueError:
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not _is_valid(data):
        return None
    return Measurement(
        layer=data["layer"],
        kernel=data["kernel"],
        choice=configured_schedule(data["rule"], data["config"]),
        status=data["status"],
        count=data["count"],
        unit=data["unit"],
        what=data["what"],
        at=MeasurementContext(*(data[name] for name in _CONTEXT_FIELDS)),
    )


def _is_valid(data: Mapping[str, Any]) -> bool:
    config, count = data.get("config"), data.get("count")
    return (
        all(isinstance(data.get(name), str) for name in _STRING_FIELDS)
        and data["status"] in _STATUSES
        and type(count) is int
        and count >= 0
        and isinstance(config, dict)
        and all(type(value) in (int, str) for value in config.values())
    )


# ---- what layers and kernels are known by --------------------------------------------------------


def layer_digest(call: OpCall, target: Target) -> str:
    """The structure of a layer on a target: operator, attributes, shapes, types, profile.

    Of quantisation and weights only their granularity counts: what kernels make of the values
    shows in their code.
    """
    data = {
        "op": call.op,
        "attrs": {name: _plain(value) for name, value in call.attrs.items()},
        "inputs": [
            None if kind is None else [*_structure(kind), call.constant(index) is not None]
            for index, kind in enumerate(call.inputs)
        ],
        "outputs": [_structure(kind) for kind in call.outputs],
        "numerics": call.numerics,
        "target": str(target),
    }
    return _digest(json.dumps(data, sort_keys=True))


def kernel_digest(function: tir.PrimFunc) -> str:
    """The form of a kernel: its code without names of its own and the values of its data."""

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
    found = kind.quantization
    granularity = "none" if found is None else "tensor" if len(found.scales) == 1 else "channel"
    return [list(kind.shape), kind.dtype.name, granularity]


def _plain(value: Attr) -> object:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


# ---- many measurements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TuningRecords:
    """What a log says, by layer. `digest` is of its content, in any order; "" without content."""

    layers: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)
    digest: str = ""

    @staticmethod
    def from_measurements(measurements: Iterable[Measurement]) -> TuningRecords:
        """The same from any order of `measurements`, duplicates among them or not."""
        unique = {item.line(): item for item in measurements}
        layers: dict[str, tuple[Measurement, ...]] = {}
        for line in sorted(unique):
            item = unique[line]
            layers[item.layer] = (*layers.get(item.layer, ()), item)
        return TuningRecords(layers, _digest("\n".join(sorted(unique))) if unique else "")

    def measurements_for_layer(self, layer: str, board: str) -> tuple[Measurement, ...]:
        """What is known of a layer, all counted in one way.

        Of several circumstances those of `board` come first, then cycles, then those with most
        measurements.
        """
        groups: dict[tuple[str, MeasurementContext], list[Measurement]] = {}
        for item in self.layers.get(layer, ()):
            groups.setdefault((item.unit, item.at), []).append(item)

        def rank(key: tuple[str, MeasurementContext]) -> tuple[bool, bool, int, str]:
            unit, at = key
            return at.board != board, unit != "cycles", -len(groups[key]), f"{unit} {at}"

        best = min(groups, key=rank, default=None)
        return () if best is None else tuple(groups[best])


NO_TUNING_RECORDS = TuningRecords()
"""What is known without a log."""
