"""Conformance cases without generated weights, from case_tables.txt, which describes its lines."""

import json
import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from firmwright.base.errors import InternalError
from firmwright.base.text_sections import read_sections
from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    float32,
)

_PROFILES = {"litert": LITERT, "tflm": TFLM, None: BOTH_PROFILES}
_CASE = re.compile(
    r"(?P<name>\S+): (?P<builtin>[\w:]+)\((?P<inputs>.*)\) -> (?P<outputs>.*?)"
    r"(?P<options>( \w+=\S+)*)( (?P<profile>litert|tflm))?"
)
_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](@(?P<scales>[^:]+):(?P<zero_points>\S+))?"
    r"( axis (?P<axis>\d+))?( in (?P<low>\S+)\.\.(?P<high>\S+))?(?P<state> state)?"
    r"( = (?P<data>.*))?"
)


def _cases(text: str) -> Iterator[ConformanceCase]:
    lines = re.sub(r"\n {4}", " ", text.strip()).splitlines()
    for line in (each for each in lines if not each.startswith("#")):
        match = _CASE.fullmatch(line)
        if match is None:
            raise InternalError(f"this is no conformance case: {line}")
        options = (word.partition("=")[::2] for word in match["options"].split())
        yield ConformanceCase(
            match["name"],
            match["builtin"],
            tuple(map(_tensor, match["inputs"].split(", "))),
            tuple(filter(None, map(_tensor, match["outputs"].split(", ")))),
            {name: _option(value) for name, value in options},
            _PROFILES[match["profile"]],
        )


def _option(text: str) -> object:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _tensor(text: str) -> CaseTensor | None:
    if text == "-":
        return None
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise InternalError(f"this is no tensor of a conformance case: {text}")
    shape, dtype = tuple(map(int, filter(None, match["shape"].split(",")))), match["dtype"]
    kind = float if dtype == "float32" else int
    values = [kind(word) for word in (match["data"] or "").split()]
    return CaseTensor(
        shape,
        dtype,
        tuple(float32(float(scale)) for scale in (match["scales"] or "").split("|") if scale),
        tuple(int(point) for point in (match["zero_points"] or "").split("|") if point),
        int(match["axis"]) if match["axis"] else None,
        np.resize(np.array(values, dtype), shape) if values else None,
        bool(match["state"]),
        (int(match["low"]), int(match["high"])) if match["low"] else None,
    )


CASES: CaseTable = {
    op: partial(_cases, text) for op, text in read_sections(__file__, ".txt").items()
}
