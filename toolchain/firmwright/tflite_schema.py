"""The tables of the TFLite schema in tflite_schema.txt: fields and enumerations."""

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.base.text_sections import read_sections
from firmwright.ir.core import Attr

FILE_IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3

_TEXT = read_sections(__file__, ".txt")


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One field of a table; `default` is the value of an absent scalar."""

    name: str
    slot: int
    type: str
    default: int

    @property
    def default_value(self) -> Attr:
        match self.type:
            case "string":
                return ""
            case "bool":
                return bool(self.default)
            case "f32":
                return float(self.default)
            case name if name in ENUMERATIONS:
                return ENUMERATIONS[name][self.default]
            case name if name.startswith("["):
                return ()
            case _:
                return self.default


Fields = Mapping[str, SchemaField]

_OPTIONS_OF_OTHER_NAME = {
    "Pool2D": "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D",
    "L2Norm": "L2_NORMALIZATION",
    "SequenceRNN": "UNIDIRECTIONAL_SEQUENCE_RNN",
    "MaximumMinimum": "MAXIMUM MINIMUM",
    "Reducer": "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL",
    "Conv3D": "CONV_3D_TRANSPOSE",
    "Random": "RANDOM_STANDARD_NORMAL RANDOM_UNIFORM MULTINOMIAL",
}
"""Options table -> operators with names that differ from the table's."""

# Value k of an enumeration is entry k. Element types are spelled as base/dtypes.py
# spells them.
ENUMERATIONS: Mapping[str, tuple[str, ...]] = {
    "TensorType": tuple(_TEXT["tensor_types"].split()),
    "Activation": ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"),
    "Padding": ("SAME", "VALID"),
    "MirrorPadMode": ("REFLECT", "SYMMETRIC"),
    "WeightsFormat": ("DEFAULT", "SHUFFLED4x16INT8"),
    "LSTMKernel": ("FULL", "BASIC"),
    "LSHProjection": ("UNKNOWN", "SPARSE", "DENSE"),
    "Combiner": ("SUM", "MEAN", "SQRTN"),
}

# Bits of one element, for the types whose constants have a size given by their shape.
ELEMENT_BITS: Mapping[str, int] = {
    "bool": 8,
    "int4": 4,
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "float16": 16,
    "bfloat16": 16,
    "int32": 32,
    "uint32": 32,
    "float32": 32,
    "int64": 64,
    "uint64": 64,
    "float64": 64,
    "complex64": 64,
    "complex128": 128,
}


def _fields(words: list[str]) -> Fields:
    fields = {}
    for slot, word in enumerate(words):
        if word != "_":
            name, _, kind = word.partition(":")
            kind, _, default = kind.partition("=")
            fields[name] = SchemaField(name, slot, kind, int(default or 0))
    return fields


def _entries(text: str) -> list[list[str]]:
    """Return the words of each table; lines that begin with a blank continue one."""
    return [entry.split() for entry in text.replace("\n    ", " ").splitlines()]


_OPTION_ENTRIES = (
    *_entries(_TEXT["options"]),
    *(entry.split(":") for entry in _TEXT["options_without_fields"].split()),
)
TABLES: Mapping[str, Fields] = {
    **{words[0]: _fields(words[1:]) for words in _entries(_TEXT["containers"])},
    **{f"{words[1]}Options": _fields(words[2:]) for words in _OPTION_ENTRIES},
}
OPTION_TABLES: Mapping[int, str] = {
    int(n): f"{name}Options" for n, name, *_ in _OPTION_ENTRIES
}
OPERATORS: tuple[str, ...] = tuple(_TEXT["operators"].split())


def _options_by_operator() -> dict[str, str]:
    by_plain_name = {name.lower(): name for name in OPTION_TABLES.values()}
    plain_names = {op: f"{op.replace('_', '').lower()}options" for op in OPERATORS}
    options: dict[str, str] = {}
    for table, ops in _OPTIONS_OF_OTHER_NAME.items():
        for op in ops.split():
            options[op] = f"{table}Options"
    for op, plain_name in plain_names.items():
        if plain_name in by_plain_name:
            options[op] = by_plain_name[plain_name]
    return options


OPTIONS_OF_OPERATOR: Mapping[str, str] = _options_by_operator()
