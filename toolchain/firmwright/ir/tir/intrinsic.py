"""The intrinsic record: an operation as numpy function, C and text for targets.

In C an intrinsic is a `static inline` function. Its body is `portable`, or `text` if
the target has the feature `requires` and inline assembly is enabled. The numpy meaning
must work on arrays of lanes.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from firmwright.base.dtypes import FLOAT32, FLOAT64, INT32, INT64, UINT32, UINT64, DType
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir

OperandKind: TypeAlias = Literal["in", "out", "inout", "ptr", "imm"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A register, an immediate, or a pointer with the region that it accesses.

    For `ptr`: `dtype` is the element type, `extent` the number of elements accessed,
    starting at the pointer, `stride` the distance between accessed rows (0 =
    contiguous), and `post_increment` the number of elements by which the pointer
    advances. With `times`, the name of an integer operand, `extent` elements are
    accessed that many times, one after the other.
    """

    name: str
    kind: OperandKind
    dtype: DType
    access: tir.AccessMode = "r"
    extent: int = 0
    stride: int = 0
    post_increment: int = 0
    times: str = ""


def pointers(
    dtype: DType, access: tir.AccessMode = "r", /, **extents: int
) -> tuple[Operand, ...]:
    """Return pointer operands, each with the number of elements that it accesses."""
    return tuple(
        Operand(name, "ptr", dtype, access, extent) for name, extent in extents.items()
    )


def inputs(dtype: DType, /, *names: str) -> tuple[Operand, ...]:
    return tuple(Operand(name, "in", dtype) for name in names)


def immediates(*names: str) -> tuple[Operand, ...]:
    return tuple(Operand(name, "imm", INT32) for name in names)


Meaning: TypeAlias = Callable[..., Any]
"""What an intrinsic computes, in numpy, from its operands; pointers are arrays."""


CyclesOnCore: TypeAlias = Callable[[str, Sequence[int]], float]
"""The modeled cycles of a call on a core, which has a timing table, by its name.

The arguments are those of `count`.
"""


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An intrinsic; `result` is None for statements.

    `portable` and `text` are C statements over the operand names, ending in `return` if
    there is a result; `text` maps a compiler family (`gnu` covers gcc and clang) to a
    body. `rare` continues `portable`, if that does not return, out of line; if
    `portable` is empty, it is the function. `definitions` are preprocessor macros that
    `text` uses, printed once per file. `instructions` feeds the cost model; `count`
    computes the executed ones from the arguments: extents of pointers, and 0 for
    unknown values. `cycles` are those of the assembly. Instead of `portable`, an
    intrinsic with a result may have its `value`, an expression of variables with the
    names of the operands. `portable` may call other intrinsics, which are then in
    `calls`, and writes them `@name(...)`. With `is_walk`, it reads a few words of its
    tables, so that `count` alone prices it. With `has_coded_loops`, its constants
    count the iterations of its loops. An intrinsic with a `symbol` is an external C
    function, declared in `header` ("": the header of its operands).
    """

    name: str
    operands: tuple[Operand, ...]
    meaning: Meaning
    portable: str
    doc: str
    result: DType | None = None
    requires: str = ""
    text: Mapping[str, str] = field(default_factory=dict)
    rare: str = ""
    definitions: tuple[str, ...] = ()
    instructions: int = 1
    count: Callable[[Sequence[int]], int] | None = None
    cycles: CyclesOnCore | None = None
    symbol: str = ""
    header: str = ""
    value: tir.Expr | None = None
    calls: tuple[str, ...] = ()
    is_walk: bool = False
    has_coded_loops: bool = False


IntrinsicTable: TypeAlias = Mapping[str, Intrinsic]
IntrinsicMakers: TypeAlias = Mapping[str, Callable[[], Intrinsic]]
"""The intrinsics of a large family by name, each as a function that makes it."""


class IntrinsicFamilies(NamedTuple):
    """Intrinsics that are there, and those that are made one by one."""

    ready: IntrinsicTable
    makers: IntrinsicMakers


class IntrinsicsOnUse(IntrinsicTable):
    """A table of intrinsics in parts, read in their order until a name is found.

    A part is a function that returns its intrinsics. Those with a maker are made when
    they are first used. A program uses a few of the many sizes of a micro-kernel, and
    to write the assembly of them all would take about as long as to compile a small
    model.
    """

    def __init__(self, *parts: Callable[[], IntrinsicFamilies]) -> None:
        self._unread = list(parts)
        self._ready = dict[str, Intrinsic]()
        self._makers = dict[str, Callable[[], Intrinsic]]()

    def _read_part(self) -> None:
        ready, makers = self._unread.pop(0)()
        self._ready |= ready
        self._makers |= makers

    def _knows(self, name: object) -> bool:
        return name in self._ready or name in self._makers

    def __getitem__(self, name: str) -> Intrinsic:
        found = self._ready.get(name)
        if found is None:
            if name not in self:
                raise KeyError(name)
            if name not in self._ready:
                self._ready[name] = self._makers[name]()
            found = self._ready[name]
        return found

    def __contains__(self, name: object) -> bool:
        while self._unread and not self._knows(name):
            self._read_part()
        return self._knows(name)

    def __iter__(self) -> Iterator[str]:
        while self._unread:
            self._read_part()
        return iter(dict.fromkeys([*self._ready, *self._makers]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


_FEATURES = ("dsp", "fpu", "mla", "thumb2")
_SCALARS = (FLOAT32, FLOAT64, INT32, INT64, UINT32, UINT64)
_TYPES = {dtype.c_type: dtype for dtype in _SCALARS}
_FUNCTION = re.compile(
    r"/\* (?P<doc>.*?)(?: (?P<count>\d+) instructions\.)? \*/\n"
    r"(?P<result>\w+) (?P<name>\w+)\((?P<operands>.*?)\)\n\{\n(?P<body>.*)\n\}",
    re.DOTALL,
)


def read_intrinsics(
    module: str, meanings: Mapping[str, Callable[..., Any]], requires: str = ""
) -> dict[str, Intrinsic]:
    """Return the intrinsics that are C functions in the `.c.in` file of a module.

    `module` is the `__file__` of the module.

    A comment has the doc and the number of instructions. A section `NAME_FEATURE` is
    the body of function NAME for targets with this feature.
    """
    sections, intrinsics = read_sections(module), {}
    for name, meaning in meanings.items():
        function = _FUNCTION.fullmatch(sections[name].replace("\n * ", " "))
        assert function is not None
        operands: list[Operand] = []
        for declaration in function["operands"].split(", "):
            c_type, word = declaration.split()
            operands.append(Operand(word, "in", _TYPES[c_type]))
        feature = next((each for each in _FEATURES if f"{name}_{each}" in sections), "")
        intrinsics[name] = Intrinsic(
            name,
            tuple(operands),
            meaning,
            portable=re.sub(r"^ {4}", "", function["body"], flags=re.MULTILINE),
            doc=function["doc"],
            result=_TYPES[function["result"]],
            requires=feature or requires,
            text={"gnu": sections[f"{name}_{feature}"]} if feature else {},
            instructions=int(function["count"] or 1),
        )
    return intrinsics
