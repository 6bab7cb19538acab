"""The exported program: ATen operators on values that are defined once, before use."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from firmwright.base.dtypes import Array
from firmwright.base.errors import ModelError
from firmwright.base.json_input import (
    Json,
    JsonObject,
    as_integer,
    as_list,
    as_number,
    as_object,
    as_objects,
    as_text,
)
from firmwright.base.resource_limits import TENSOR_BYTES_MAX
from firmwright.frontends.pytorch.archive import DTYPES, ProgramArchive, read_archive

SCHEMA_MAJOR = 8


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a value of the program."""

    name: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An argument of a kind that no translator understands, for example a subgraph."""

    kind: str


Argument: TypeAlias = (
    "Ref | Unreadable | int | float | bool | str | list[Argument] | None"
)


@dataclass(frozen=True, slots=True)
class ProgramType:
    """Element type and shape of a tensor; a dynamic size is its expression's text."""

    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ProgramNode:
    """A call of an operator such as "aten.conv2d.default"; None is an unused result."""

    target: str
    args: Mapping[str, Argument]
    outputs: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ExportedProgram:
    """A decoded program; `updates` maps buffers to their values after a run.

    `bounds` are the least and largest values of the symbols of dynamic sizes, None if
    unlimited. `sizes` are the integers that nodes compute from such sizes, by name.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    nodes: tuple[ProgramNode, ...]
    types: Mapping[str, ProgramType]
    updates: Mapping[str, str]
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    sizes: Mapping[str, int | str] = field(default_factory=dict)


def read_program(data: bytes, file: str) -> ExportedProgram:
    """Decode a file; raise ModelError if it is broken."""
    archive = read_archive(data, file)
    version = archive.root.get("schema_version")
    major = version.get("major") if isinstance(version, dict) else None
    if major != SCHEMA_MAJOR:
        what = (
            f"the program has version {major} of PyTorch's format, not {SCHEMA_MAJOR}."
        )
        hint = "save it with PyTorch 2.8 or later; if it is newer, update firmwright."
        raise ModelError(what, where=file, hint=hint)
    try:
        program = _decode(archive, file)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        OverflowError,
    ) as error:
        what = (
            f"the program does not follow its schema ({type(error).__name__} "
            f"{error!s:.60})."
        )
        raise ModelError.broken(what, file) from error
    _check_names(program, file)
    return program


def _decode(archive: ProgramArchive, file: str) -> ExportedProgram:
    module = as_object(archive.root["graph_module"])
    graph = as_object(module["graph"])
    signature = as_object(module["signature"])
    types: dict[str, ProgramType] = {}
    for name, meta in as_object(graph["tensor_values"]).items():
        types[name] = _type(name, as_object(meta), file)
    inputs: list[str] = []
    outputs: list[str] = []
    updates: dict[str, str] = {}
    constants: dict[str, Array] = {}
    buffers: dict[str, str] = {}
    for spec in as_objects(signature["input_specs"]):
        ((kind, value),) = spec.items()
        row = as_object(value)
        match kind:
            case "user_input":
                inputs.append(_input_name(as_object(row["arg"]), file))
            case "parameter" | "buffer" | "tensor_constant":
                name = _name(row["arg"])
                source = as_text(row[f"{kind}_name"])
                if source not in archive.tensors:
                    raise ModelError.broken(f"the tensor {source!r} is missing.", file)
                constants[name] = archive.tensors[source]
                buffers[source] = name
            case "constant_input":
                pass  # a number or text of the call, which the graph contains
            case _:
                what = f"the program has an input of the kind {kind}."
                raise ModelError(what, where=file)
    for spec in as_objects(signature["output_specs"]):
        ((kind, value),) = spec.items()
        row = as_object(value)
        match kind:
            case "user_output":
                outputs += _output_names(as_object(row["arg"]), file)
            case "buffer_mutation":
                updates[buffers[as_text(row["buffer_name"])]] = _name(row["arg"])
            case _:
                what = f"the program has a result of the kind {kind}."
                hint = "return tensors and update buffers only."
                raise ModelError(what, where=file, hint=hint)
    nodes = tuple(map(_node, as_objects(graph["nodes"])))
    return ExportedProgram(
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        constants=constants,
        nodes=nodes,
        types=types,
        updates=updates,
        bounds=_bounds(as_object(archive.root.get("range_constraints", {}))),
        sizes=_computed_sizes(as_object(graph.get("sym_int_values", {}))),
    )


def _bounds(constraints: JsonObject) -> dict[str, tuple[int, int | None]]:
    bounds: dict[str, tuple[int, int | None]] = {}
    for symbol, row in constraints.items():
        least, most = as_object(row)["min_val"], as_object(row)["max_val"]
        last = None if most is None else as_integer(most)
        bounds[symbol] = 0 if least is None else as_integer(least), last
    return bounds


def _computed_sizes(values: JsonObject) -> dict[str, int | str]:
    return {name: _size(as_object(value)) for name, value in values.items()}


def _name(value: Json) -> str:
    return as_text(as_object(value)["name"])


def _type(name: str, meta: JsonObject, file: str) -> ProgramType:
    code = as_integer(meta["dtype"])
    dtype = DTYPES.get(code, f"type {code}")
    shape = tuple(map(_size, as_objects(meta["sizes"])))
    if 4 * math.prod(n for n in shape if isinstance(n, int)) > TENSOR_BYTES_MAX:
        raise ModelError.broken(f"{name!r} has the shape {list(shape)}.", file)
    return ProgramType(dtype, shape)


def _size(item: JsonObject) -> int | str:
    if "as_int" not in item:
        return str(as_object(item["as_expr"])["expr_str"])
    size = as_integer(item["as_int"])
    if size < 0:
        raise ValueError("a negative size")
    return size


def _input_name(arg: JsonObject, file: str) -> str:
    value = _argument(arg)
    if not isinstance(value, Ref):
        what = "the program has an input that is not a tensor."
        hint = "give such values when the model is constructed."
        raise ModelError(what, where=file, hint=hint)
    return value.name


def _output_names(arg: JsonObject, file: str) -> list[str]:
    value = _argument(arg)
    if isinstance(value, Ref):
        return [value.name]
    if value is None:
        return []
    raise ModelError("the program has a result that is not a tensor.", where=file)


def _node(item: JsonObject) -> ProgramNode:
    args: dict[str, Argument] = {}
    for row in as_objects(item["inputs"]):
        args[as_text(row["name"])] = _argument(row["arg"])
    outputs: list[str | None] = []
    for row in as_objects(item["outputs"]):
        value = _argument(row)
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            outputs.append(part.name if isinstance(part, Ref) else None)
    target = as_text(item["target"]).removeprefix("torch.ops.")
    return ProgramNode(target, args, tuple(outputs))


def _argument(row: Json) -> Argument:
    ((kind, value),) = as_object(row).items()
    match kind:
        case "as_tensor":
            return Ref(_name(value))
        case "as_tensors":
            return [Ref(_name(item)) for item in as_list(value)]
        case "as_optional_tensors":
            return [_argument(item) for item in as_list(value)]
        case "as_none":
            return None
        case "as_int" | "as_scalar_type":
            return as_integer(value)
        case "as_float":
            return _float(value)
        case "as_bool":
            return bool(value)
        case "as_string":
            return str(value)
        case "as_ints":
            return list(map(as_integer, as_list(value)))
        case "as_floats":
            return list(map(_float, as_list(value)))
        case "as_bools":
            return list(map(bool, as_list(value)))
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _symbolic(value)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_symbolic(item) for item in as_list(value)]
    return Unreadable(str(kind).removeprefix("as_"))


def _float(value: Json) -> float:
    """Return a float, which the format may write as text: `NaN`, `Infinity`."""
    return float(value if isinstance(value, str) else as_number(value))


def _symbolic(value: Json) -> Argument:
    ((kind, item),) = as_object(value).items()
    return Ref(as_text(item)) if kind == "as_name" else _argument({kind: item})


def refs_in(value: Argument) -> Iterator[str]:
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, list):
        for item in value:
            yield from refs_in(item)


def _check_names(program: ExportedProgram, file: str) -> None:
    defined = {*program.inputs, *program.constants}
    for node in program.nodes:
        where = f"{file}: {node.target}"
        for value in node.args.values():
            for name in refs_in(value):
                if name not in defined:
                    what = f"{name!r} is read before it is defined."
                    raise ModelError.broken(what, where)
        for output in node.outputs:
            if output in defined:
                raise ModelError.broken(f"{output!r} is defined a second time.", where)
            if output is not None:
                defined.add(output)
    results: Sequence[str] = (*program.outputs, *program.updates.values())
    for name in results:
        if name not in defined:
            raise ModelError.broken(f"nothing defines its result {name!r}.", file)
    for name in (*program.inputs, *results):
        if name not in program.types:
            raise ModelError.broken(f"{name!r} has no type.", file)
