"""Translation of a program's nodes to ONNX nodes: the writer, and the view of one node.

The ONNX importer, with its fusion of quantized operators, does the rest. Shapes and
element types of results are those of the program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import WorkBudget, constant_budget
from firmwright.frontends.onnx.protobuf import SyntheticAttribute, SyntheticNode
from firmwright.frontends.pytorch.archive import DTYPES
from firmwright.frontends.pytorch.program import (
    Argument,
    ExportedProgram,
    ProgramNode,
    ProgramType,
    Ref,
    Unreadable,
)
from firmwright.ir.graph.nodes import unique_name

Operand: TypeAlias = "str | Array | np.generic | None"


@dataclass(slots=True)
class NodeWriter:
    """The nodes and constants so far; `names` maps the program's values to ONNX's.

    `transposed` maps transposed matrices to their sources, `read` holds the values that
    are read.
    """

    program: ExportedProgram
    nodes: list[SyntheticNode] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    transposed: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    computed: WorkBudget = field(default_factory=constant_budget)

    def rename(self, first: int, old: str, new: str) -> None:
        def renamed(name: str) -> str:
            return new if name == old else name

        for index in range(first, len(self.nodes)):
            node = self.nodes[index]
            inputs = tuple(map(renamed, node.input))
            outputs = tuple(map(renamed, node.output))
            self.nodes[index] = replace(node, input=inputs, output=outputs)


@dataclass(frozen=True, slots=True)
class NodeTranslation:
    """One node of the program, with access to its arguments, types and the writer."""

    node: ProgramNode
    writer: NodeWriter
    stem: str

    # ---- arguments -------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return self.node.args.get(name) is not None

    def arg(self, name: str, default: Any = None) -> Any:
        """Return a number, text or list; refuse values that the program computes."""
        value = self.node.args.get(name)
        if value is None:
            return default
        if isinstance(value, Unreadable):
            raise NotSupportedError(f"an argument {name!r} of the kind {value.kind}")
        if _is_variable(value):
            raise NotSupportedError(
                f"an argument {name!r} that is computed in the program"
            )
        return value

    def ints(self, name: str, count: int = 0, default: Sequence[int] = ()) -> list[int]:
        """Return integers; a single one is repeated `count` times."""
        value = self.arg(name)
        if value is None or value == []:
            return list(default)
        items = value if isinstance(value, list) else [value]
        values = [int(n) for n in items]
        return values * count if len(values) == 1 and count else values

    def tensor(self, name: str) -> str:
        """Return an argument's ONNX value; a number becomes a typed constant.

        Its type is that of the result.
        """
        return self.operand(self.node.args.get(name), name)

    def operand(self, value: Argument, name: str = "operand") -> str:
        if isinstance(value, Ref):
            if value.name not in self.writer.names:
                raise NotSupportedError(f"an argument {name!r} that is not a tensor")
            return self.writer.names[value.name]
        if isinstance(value, bool | int | float):
            return self.constant(np.array(value, self.dtype()))
        raise NotSupportedError(f"without the argument {name!r}")

    def optional(self, name: str) -> str:
        return self.tensor(name) if self.has(name) else ""

    def tensors(self, name: str) -> list[str]:
        value = self.node.args.get(name)
        if not isinstance(value, list):
            raise NotSupportedError(f"without the list {name!r}")
        return [self.operand(item, name) for item in value]

    # ---- types -----------------------------------------------------------------------

    def type_of(self, name: str) -> ProgramType:
        value = self.node.args.get(name)
        if not isinstance(value, Ref):
            raise NotSupportedError(f"an argument {name!r} that is not a tensor")
        return self.declared(value.name)

    def shape(self, name: str) -> tuple[int, ...]:
        return fixed_shape(self.type_of(name))

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        return fixed_shape(self.declared(self.node.outputs[index]))

    def dtype(self, index: int = 0) -> str:
        return self.declared(self.node.outputs[index]).dtype

    def real(self, values: float | Array) -> Array:
        """Return floats of float64 if the result is, else of float32."""
        kind = "float64" if self.dtype() == "float64" else "float32"
        return np.asarray(values, kind)

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        axis = self.arg(name, default)
        if not isinstance(axis, int) or not -max(rank, 1) <= axis < max(rank, 1):
            raise NotSupportedError(f"axis {axis} of {rank} dimensions")
        return axis % max(rank, 1)

    def declared(self, name: str | None) -> ProgramType:
        if name is None or name not in self.writer.program.types:
            raise NotSupportedError("a value without a type")
        return self.writer.program.types[name]

    def reserve(self, size_bytes: int) -> None:
        self.writer.computed.spend(size_bytes)

    # ---- nodes -----------------------------------------------------------------------

    def constant(self, array: Array, part: str = "constant") -> str:
        self.reserve(array.nbytes)
        name = unique_name(f"{self.stem}/{part}", self.writer.taken)
        self.writer.constants[name] = np.asarray(array)
        return name

    def emit(self, op: str, *inputs: Operand, **attrs: Any) -> str:
        return self.emit_all(op, 1, *inputs, **attrs)[0]

    def emit_all(
        self, op: str, count: int, *inputs: Operand, **attrs: Any
    ) -> tuple[str, ...]:
        """Add an ONNX node with `count` results; input arrays become constants."""
        names = tuple(map(self._name_of, inputs))
        stem = f"{self.stem}/{op}"
        outputs = tuple(unique_name(stem, self.writer.taken) for _ in range(count))
        items = [SyntheticAttribute(k, v) for k, v in attrs.items() if v is not None]
        self.writer.nodes.append(SyntheticNode(op, names, outputs, tuple(items)))
        return outputs

    def _name_of(self, x: Operand) -> str:
        if x is None:
            return ""
        return x if isinstance(x, str) else self.constant(np.asarray(x))

    def reshape(self, x: Operand, shape: Sequence[int]) -> str:
        return self.emit("Reshape", x, np.array(shape, np.int64), allowzero=1)

    def cast(self, x: str, dtype: str) -> str:
        return self.emit("CastLike", x, np.zeros((), np.dtype(dtype)))

    def as_dtype(self, name: str, dtype: str) -> str:
        """Return a tensor or number as `dtype`, as arithmetic promotes it."""
        value = self.node.args.get(name)
        if isinstance(value, bool | int | float):
            return self.constant(np.array(value, dtype))
        x = self.tensor(name)
        return x if self.type_of(name).dtype == dtype else self.cast(x, dtype)

    def promoted(self, *names: str) -> str:
        """Return the common element type of arguments that are compared or combined."""
        tensors: list[ProgramType] = []
        is_float = False
        for name in names:
            value = self.node.args.get(name)
            if isinstance(value, Ref):
                kind = self.type_of(name)
                tensors.append(kind)
                is_float |= kind.dtype.startswith("float")
            else:
                is_float |= isinstance(value, float)
        # Tensors without axes count only if there are no others.
        own = [t.dtype for t in tensors if t.shape] or [t.dtype for t in tensors]
        common = np.result_type(*own).name if own else "float32"
        if is_float and not common.startswith("float"):
            return "float32"
        return common


def _is_variable(value: Argument) -> bool:
    if isinstance(value, list):
        return any(map(_is_variable, value))
    return isinstance(value, Ref)


def fixed_shape(kind: ProgramType) -> tuple[int, ...]:
    if any(not isinstance(size, int) for size in kind.shape):
        raise NotSupportedError(f"the shape {list(kind.shape)}, which is not fixed")
    return tuple(int(size) for size in kind.shape)


def scalar_type(code: int | None, default: str) -> str:
    """Return the name of an element type that an argument gives by its number."""
    return default if code is None else DTYPES.get(code, f"type {code}")


Translator: TypeAlias = Callable[[NodeTranslation], "str | Sequence[str]"]
"""A function that translates a node and returns the ONNX values of its results."""
Translators: TypeAlias = Mapping[str, Translator]
