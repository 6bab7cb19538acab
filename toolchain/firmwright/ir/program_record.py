"""The choices of a compilation, for compiling new weights to the same code.

metadata.json holds a record. A compilation with `--update-of` repeats the choices
instead of searching, and compares the digests, which do not cover the values of
constants.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from firmwright.base.json_input import (
    Json,
    JsonObject,
    as_integer,
    as_list,
    as_object,
    as_text,
    as_texts,
)
from firmwright.base.value_kinds import (
    SIZE,
    TEXT,
    TEXTS,
    TRUTH,
    Kind,
    list_of,
    mapping_of,
    shortened,
    wrong_values,
)
from firmwright.ir import tir
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.module_attributes import module_attributes
from firmwright.ir.syntax import IRWriter
from firmwright.ir.tir.printer import print_prim
from firmwright.ir.tir.traversal import prim_calls, statements

RECORD_VERSION = 1
_BAND = re.compile(r"_rows(\d+)(?:_sums)?$")
_VARYING_ATTRS = frozenset({"source_sha256", "tuning"})
"""Attributes of a module that name its file or its measurements; they are not code."""
_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """The schedule of a kernel with its configuration, and the digest of its code."""

    schedule: str
    code: str


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """Calls first..end - 1, computed together in bands of `band` rows."""

    first: int
    end: int
    band: int


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """The choices of a compilation by kernel, and the digest of code and plan.

    `calls` describes the calls of the graph that was lowered, by kernel name, without
    the channels that were removed as constant. `options` and version are those of the
    compilation.
    """

    calls: Mapping[str, str]
    kernels: Mapping[str, RecordedKernel]
    segments: tuple[RecordedSegment, ...]
    has_removed_channels: bool = False
    code: str = ""
    name: str = ""
    board: str = ""
    tool_version: str = ""
    options: JsonObject = field(default_factory=dict)

    def is_streamed(self, index: int) -> bool:
        return any(segment.first <= index < segment.end for segment in self.segments)

    def to_json(self) -> dict[str, Json]:
        """Return the part that metadata.json does not hold elsewhere."""
        kernels = {name: [one.schedule, one.code] for name, one in self.kernels.items()}
        return {
            "version": RECORD_VERSION,
            "calls": dict(self.calls),
            "kernels": kernels,
            "removed_channels": self.has_removed_channels,
            "segments": [list(asdict(segment).values()) for segment in self.segments],
            "code": self.code,
        }


_KERNEL = Kind(
    "schedule and digest",
    lambda row: TEXTS.includes(row) and isinstance(row, list) and len(row) == 2,
)
_SEGMENT = Kind(
    "first call, end and band",
    lambda row: (
        isinstance(row, list) and len(row) == 3 and all(map(SIZE.includes, row))
    ),
)
_KINDS: Mapping[str, Kind] = {
    "version": SIZE,
    "calls": mapping_of(TEXT, "an object with strings"),
    "kernels": mapping_of(
        _KERNEL, "an object with a schedule and a digest for each kernel"
    ),
    "removed_channels": TRUTH,
    "segments": list_of(_SEGMENT, "a list of first call, end and band"),
    "code": TEXT,
}


def record_from_json(data: JsonObject) -> ProgramRecord:
    """Return the record in `data`; raise ValueError with a clause if malformed."""
    if data.get("version") != RECORD_VERSION:
        raise ValueError(
            f"has the format {shortened(data.get('version'))}, not {RECORD_VERSION}"
        )
    for problem in wrong_values(data, _KINDS, ""):
        raise ValueError(problem)
    kernels: dict[str, RecordedKernel] = {}
    for name, row in as_object(data["kernels"]).items():
        schedule, code = as_texts(row)
        kernels[name] = RecordedKernel(schedule, code)
    segments: list[RecordedSegment] = []
    for row in as_list(data["segments"]):
        first, end, band = map(as_integer, as_list(row))
        segments.append(RecordedSegment(first, end, band))
    return ProgramRecord(
        calls={name: as_text(call) for name, call in as_object(data["calls"]).items()},
        kernels=kernels,
        segments=tuple(segments),
        has_removed_channels=data["removed_channels"] is True,
        code=as_text(data["code"]),
    )


def record_selection(graph: IRModule, module: IRModule) -> ProgramRecord:
    """Return the choices that made `module` from the calls of `graph`."""
    kernels: dict[str, RecordedKernel] = {}
    for name, function in sorted(module.functions.items()):
        if isinstance(function, tir.PrimFunc):
            schedule = str(function.attrs.get("schedule", ""))
            kernels[name] = RecordedKernel(schedule, digest_kernel(function))
    entry, calls = graph.entry, dict[str, str]()
    if isinstance(entry, Function):
        for index, call in enumerate(entry.body):
            calls[f"{call.op}_{index}"] = describe_call(call)
    has_removed = bool(graph.results.live_channels)
    return ProgramRecord(calls, kernels, tuple(_segments(module)), has_removed)


def _segments(module: IRModule) -> Iterator[RecordedSegment]:
    """Yield the segments: the loops of the AOT main that call operators."""
    for node in statements(module.aot_main.body):
        if not isinstance(node, tir.For):
            continue
        calls = [call for call in prim_calls(node.body) if call.op >= 0]
        if not calls:
            continue
        bands: list[int] = []
        for call in calls:
            if match := _BAND.search(call.callee):
                bands.append(int(match[1]))
        indices = [call.op for call in calls]
        yield RecordedSegment(min(indices), max(indices) + 1, max(bands, default=1))


def describe_call(call: Call) -> str:
    """Describe operator, tensors and attributes; of constants, only the types."""
    inputs = ", ".join(_describe_value(value) for value in call.inputs)
    outputs = ", ".join(_describe_value(value) for value in call.outputs)
    text = f"{call.op}({inputs}) -> {outputs}"
    pairs = sorted(attrs_to_mapping(call.attrs).items())
    attrs = ", ".join(f"{name}={_short(value)}" for name, value in pairs)
    return f"{text} {{{attrs}}}" if attrs else text


def _describe_value(value: Value | None) -> str:
    if value is None:
        return "none"
    kind = value.type
    text = f"{kind.dtype.short}{list(kind.shape)}"
    if value.constant is not None or kind.quantization is None:
        return text
    quantization = kind.quantization
    scales = ",".join(f"{scale:.9g}" for scale in quantization.scales)
    zeros = ",".join(map(str, quantization.zero_points))
    return f"{text} scale {scales} zero {zeros}"


def _short(value: Attr) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:40]}... {_digest(text)[:8]}"


def digest_kernel(function: tir.PrimFunc) -> str:
    page = IRWriter()
    print_prim(function, page, spans=False)
    return _digest(page.text())


def digest_code(module: IRModule) -> str:
    """Return a digest of what codegen prints, but for comments and constants' values.

    Codegen prints equal constants once, so the digest covers which constants are equal.
    """
    page, first = IRWriter(), dict[tuple[object, ...], int]()
    for number, (name, constant) in enumerate(module.constants.items()):
        same = number
        if not keeps_constants_apart(module):
            same = first.setdefault(_key(constant), number)
        kind = f"{constant.dtype.short} {constant.shape}"
        page.line(f"{name} {kind} {constant.pool} {same}")
    for path, file in sorted(module.files.items()):
        page.line(f"{path} {hashlib.sha256(file).hexdigest()}")
    attrs = module_attributes(module)
    for name in _VARYING_ATTRS:
        attrs.pop(name, None)
    parts = (module.name, attrs, module.targets, module.pools, module.io, module.plan)
    for part in parts:
        page.line(repr(part))
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc):
            print_prim(function, page, spans=False)
    return _digest(page.text())


def _key(constant: Constant) -> tuple[object, ...]:
    return constant.dtype.name, constant.digest, constant.pool


def keeps_constants_apart(module: IRModule) -> bool:
    """Whether equal constants stay apart, since other weights may differ."""
    return module.settings.weight_independent


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
