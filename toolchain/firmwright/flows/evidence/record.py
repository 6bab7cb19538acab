"""The record that `verify --evidence` writes: what a board did with a model.

Its JSON has the names of these fields. A file may come from anywhere: each value is
checked by the kind in its annotation before it is used, and unknown keys are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Final,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from firmwright.artifacts import Variant
from firmwright.base.dtypes import DTYPES, Array
from firmwright.base.errors import ModelError
from firmwright.base.input_files import check_regular_file
from firmwright.base.json_input import Json, JsonObject, parse_json
from firmwright.base.value_kinds import (
    OBJECT,
    WORD,
    Kind,
    is_integer,
    list_of,
    mapping_of,
    matching,
    one_of,
    shortened,
)
from firmwright.boards.schema import Compiler
from firmwright.flows.samples.sample_batches import Tensors

TransportKind = Literal["host", "emulator", "port"]
SCHEMA: Final = 1
EVIDENCE_BYTES_MAX: Final = 1 << 22
SAMPLES_MAX: Final = 10_000
VALUES_MAX: Final = 256
"""The number of values of each output that a record has; the hash covers all."""
_FLAT_LIST: Final = re.compile(r"(?<=\[)\n[^\[\]{}]*(?=\])")
_COUNT_END: Final = 1 << 63
_HINT: Final = "ask the sender for the file as verify --evidence wrote it."


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(float(str(value)))


def _is_value(value: object) -> bool:
    return _is_number(value) or value in ("nan", "inf", "-inf")


NAME = matching(r"[^\x00-\x1f\x7f]{1,1000}", "a name")
FILE_NAME = matching(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,255}", "the name of a file")
LINE = matching(r"[^\x00-\x1f\x7f]{0,200}", "a line of text")
SHA256 = matching(r"[0-9a-f]{64}", "a hash of 64 hexadecimal digits")
MODEL_ID = matching(r"[0-9a-f]{32}", "a number of 32 hexadecimal digits")
DATE = matching(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "a time such as 2026-01-31T12:00:00Z"
)
HEX_WORD = matching(r"0x[0-9a-f]{8}", "a word such as 0x410fc241")
COUNT = Kind("an integer from 0", lambda value: is_integer(value, 0, _COUNT_END))
SAMPLES = Kind(
    f"an integer from 1 to {SAMPLES_MAX:,}",
    lambda value: is_integer(value, 1, SAMPLES_MAX + 1),
)
NUMBER = Kind("a number", _is_number)
VALUES = list_of(Kind("a number", _is_value), "a list of numbers")
DTYPE = one_of(*[dtype.name for dtype in DTYPES if dtype.bits])
SIZES = list_of(COUNT, "a list of sizes")
WORDS = mapping_of(HEX_WORD, "an object of words such as 0x410fc241")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The model file, by its hash."""

    name: Annotated[str, NAME]
    file: Annotated[str, FILE_NAME]
    sha256: Annotated[str, SHA256]


@dataclass(frozen=True, slots=True)
class FirmwareImage:
    """The image by the bytes in flash, or of the program on the host."""

    variant: Annotated[Variant, one_of(*get_args(Variant))]
    compiler: Annotated[Compiler, one_of(*get_args(Compiler))]
    model_id: Annotated[str, MODEL_ID]
    sha256: Annotated[str, SHA256]
    size_bytes: Annotated[int, COUNT]


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """What the firmware says about its board; `registers` tell the kind of chip.

    None of them is unique to a device.
    """

    transport: Annotated[TransportKind, one_of(*get_args(TransportKind))]
    board: Annotated[str, LINE]
    start_up: Annotated[str, LINE]
    registers: Annotated[Mapping[str, str], WORDS]


@dataclass(frozen=True, slots=True)
class InputOrigin:
    """The samples: generated from a seed, or a file; `sha256` is of all values."""

    origin: Annotated[str, one_of("generated", "file")]
    file: Annotated[str, LINE]
    seed: Annotated[int, COUNT]
    samples: Annotated[int, SAMPLES]
    sha256: Annotated[str, SHA256]


@dataclass(frozen=True, slots=True)
class OutputValues:
    """An output over all samples; `values` are the first VALUES_MAX."""

    name: Annotated[str, NAME]
    dtype: Annotated[str, DTYPE]
    shape: Annotated[Sequence[int], SIZES]
    sha256: Annotated[str, SHA256]
    values: Annotated[Sequence[int | float | str], VALUES]


@dataclass(frozen=True, slots=True)
class ReferenceComparison:
    """The sender's comparison with the reference runtime."""

    name: Annotated[str, LINE]
    values: Annotated[int, COUNT]
    mismatches: Annotated[int, COUNT]
    max_abs_error: Annotated[int | float, NUMBER]


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """The measured cost of one operator."""

    index: Annotated[int, COUNT]
    name: Annotated[str, NAME]
    kind: Annotated[str, LINE]
    count: Annotated[int, COUNT]


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """The cost of a run in `unit`, as in a profile; `clock_hz` is 0 if unknown."""

    unit: Annotated[str, one_of("instructions", "cycles", "ns")]
    total: Annotated[int, COUNT]
    least: Annotated[int, COUNT]
    runs: Annotated[int, COUNT]
    resolution: Annotated[int, COUNT]
    clock_hz: Annotated[int, COUNT]
    stack_bytes: Annotated[int, COUNT]
    operators: tuple[OperatorCounts, ...]


@dataclass(frozen=True, slots=True)
class ModeledCycles:
    """Cycles by the core's pipeline model; the range is that of published silicon.

    The range is 0 if no silicon supports one.
    """

    cycles: Annotated[int, COUNT]
    least: Annotated[int, COUNT]
    most: Annotated[int, COUNT]


@dataclass(frozen=True, slots=True)
class ToolVersions:
    """The first lines of what the tools say about their versions; "" without a tool."""

    firmwright: Annotated[str, LINE]
    compiler: Annotated[str, LINE]
    c_library: Annotated[str, LINE]
    emulator: Annotated[str, LINE]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a board did with a model, and everything that is needed to repeat it."""

    date: Annotated[str, DATE]
    model: ModelFile
    board: Annotated[str, WORD]
    options: Annotated[JsonObject, OBJECT]
    image: FirmwareImage
    device: DeviceIdentity
    inputs: InputOrigin
    outputs: tuple[OutputValues, ...]
    reference: ReferenceComparison
    cost: MeasuredCost
    modeled: ModeledCycles | None
    wall_seconds: Annotated[int | float, NUMBER]
    tools: ToolVersions


# ---- arrays --------------------------------------------------------------------------


def hash_tensors(samples: Sequence[Tensors], names: Sequence[str]) -> str:
    """Return the SHA-256 of the little-endian values.

    They are sample by sample, with tensors in the order of `names`.
    """
    digest = hashlib.sha256()
    for sample in samples:
        for name in names:
            digest.update(_little_endian(sample[name]))
    return digest.hexdigest()


def record_outputs(samples: Sequence[Tensors]) -> tuple[OutputValues, ...]:
    """Return each output's hash over all samples and its first values."""
    outputs: list[OutputValues] = []
    for name, first in samples[0].items():
        values: list[int | float | str] = []
        for sample in samples:
            room = VALUES_MAX - len(values)
            values += map(_to_json, sample[name].ravel()[: max(room, 0)].tolist())
        outputs.append(
            OutputValues(
                name,
                first.dtype.name,
                tuple(first.shape),
                hash_tensors(samples, [name]),
                tuple(values),
            )
        )
    return tuple(outputs)


def to_array(output: OutputValues) -> Array:
    """Return the recorded values as a flat array; ValueError with a clause if wrong."""
    is_float = np.dtype(output.dtype).kind == "f"
    numbers: list[int | float] = []
    for value in output.values:
        if not is_float and type(value) is not int:
            raise ValueError(f"has the value {value!r} in {output.dtype}")
        numbers.append(float(value) if isinstance(value, str) else value)
    try:
        return np.array(numbers, dtype=output.dtype)
    except OverflowError as error:
        raise ValueError(f"has values that are no {output.dtype}") from error


def _little_endian(array: Array) -> bytes:
    kind = array.dtype.newbyteorder("<")
    return np.ascontiguousarray(array, dtype=kind).tobytes()


def _to_json(value: bool | int | float) -> int | float | str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return int(value) if isinstance(value, bool) else value


# ---- JSON ----------------------------------------------------------------------------


def evidence_to_json(evidence: Evidence) -> dict[str, object]:
    return {"schema": SCHEMA, **asdict(evidence)}


def print_evidence(evidence: Evidence) -> str:
    """Return the JSON, with each list of numbers on one line."""
    text = json.dumps(evidence_to_json(evidence), indent=1)
    return _FLAT_LIST.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def read_evidence(path: Path) -> Evidence:
    """Return the record in a file; ModelError if it is none or has a wrong value."""
    where = str(path)
    try:
        check_regular_file(path, EVIDENCE_BYTES_MAX)
        facts = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = f"the evidence cannot be read: {error}."
        raise ModelError(what, where=where, hint=_HINT) from error
    return parse_evidence(facts, where)


def parse_evidence(facts: Json, where: str) -> Evidence:
    if not isinstance(facts, Mapping):
        raise ModelError("this is not a JSON object.", where=where, hint=_HINT)
    schema = facts.get("schema")
    if schema != SCHEMA:
        what = f"the evidence has the schema {shortened(schema)}; it must be {SCHEMA}."
        raise ModelError(what, where=where, hint="the version that its tools name.")
    rest = {key: value for key, value in facts.items() if key != "schema"}
    try:
        return _read(Evidence, rest, "")
    except ValueError as error:
        what = f"the evidence {error}."
        raise ModelError(what, where=where, hint=_HINT) from error


_Record = TypeVar("_Record")


def _read(cls: type[_Record], facts: Json, path: str) -> _Record:
    """Return the dataclass `cls` from an object; ValueError with a clause if wrong."""
    if not isinstance(facts, Mapping):
        raise ValueError(f"has the {path} {shortened(facts)}, which is not an object")
    hints = get_type_hints(cls, include_extras=True)
    prefix = f"{path}." if path else ""
    for unknown in sorted(facts.keys() - hints.keys()):
        raise ValueError(f"has the unknown key {prefix}{shortened(unknown)}")
    values: dict[str, object] = {}
    for name, hint in hints.items():
        if name not in facts:
            raise ValueError(f"has no {prefix}{name}")
        values[name] = _read_value(hint, facts[name], f"{prefix}{name}")
    return cls(**values)


def _read_value(hint: object, value: Json, path: str) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind = args[1]
        if not kind.includes(value):
            found = f"has the {path} {shortened(value)}"
            raise ValueError(f"{found}, which is not {kind.description}")
        return tuple(value) if isinstance(value, list) else value
    if origin is UnionType:
        return None if value is None else _read_value(args[0], value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"has the {path} {shortened(value)}, which is not a list")
        rows: list[object] = []
        for index, item in enumerate(value):
            rows.append(_read(args[0], item, f"{path}[{index}]"))
        return tuple(rows)
    assert isinstance(hint, type)
    return _read(hint, value, path)
