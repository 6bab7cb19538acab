"""The exported program: nodes of ATen operators; values are defined once, before their uses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from firmwright.base.dtypes import Array
from firmwright.base.errors import ModelError
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


Argument: TypeAlias = Ref | Unreadable | int | float | bool | str | list[Any] | None


@dataclass(frozen=True, slots=True)
class ProgramType:
    """The element type and shape of a tensor; a dynamic size is the text of its expression."""

    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ProgramNode:
    """A call of an operator, for example "aten.conv2d.default"; None marks unused results."""

    target: str
    args: Mapping[str, Argument]
    outputs: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ExportedProgram:
    """A decoded program; `updates` maps buffers to the values that replace them after a run."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    nodes: tuple[ProgramNode, ...]
    types: Mapping[str, ProgramType]
    updates: Mapping[str, str]


def read_program(data: bytes, file: str) -> ExportedProgram:
    """Decode a file; raise ModelError if it is broken."""
    archive = read_archive(data, file)
    version = archive.root.get("schema_version")
    major = version.get("major") if isinstance(version, dict) else None
    if major != SCHEMA_MAJOR:
        what = f"the program has version {major} of PyTorch's format, not {SCHEMA_MAJOR}."
        hint = "save it with PyTorch 2.8 or later; if it is newer, update firmwright."
        raise ModelError(what, where=file, hint=hint)
    try:
        program = _decode(archive, file)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = f"the program does not follow its schema ({type(error).__name__} {error!s:.60})."
        raise ModelError.broken(what, file) from error
    _check_names(program, file)
    return program


def _decode(archive: ProgramArchive, file: str) -> ExportedProgram:
    module = archive.root["graph_module"]
    graph, signature = module["graph"], module["signature"]
    types = {name: _type(name, meta, file) for name, meta in graph["tensor_values"].items()}
    inputs, outputs, updates = [], [], {}
    constants: dict[str, Array] = {}
    buffers: dict[str, str] = {}
    for spec in signature["input_specs"]:
        ((kind, row),) = spec.items()
        match kind:
            case "user_input":
                inputs.append(_input_name(row["arg"], file))
            case "parameter" | "buffer" | "tensor_constant":
                name = _text(row["arg"]["name"])
                source = row[f"{kind}_name"]
                if source not in archive.tensors:
                    raise ModelError.broken(f"the tensor {source!r} is missing.", file)
                constants[name] = archive.tensors[source]
                buffers[source] = name
            case "constant_input":
                pass  # a number or text of the call, which the graph contains
            case _:
                raise ModelError(f"the program has an input of the kind {kind}.", where=file)
    for spec in signature["output_specs"]:
        ((kind, row),) = spec.items()
        match kind:
            case "user_output":
                outputs += _output_names(row["arg"], file)
            case "buffer_mutation":
                updates[buffers[row["buffer_name"]]] = _text(row["arg"]["name"])
            case _:
                what = f"the program has a result of the kind {kind}."
                raise ModelError(what, where=file, hint="return tensors and update buffers only.")
    nodes = tuple(_node(item) for item in graph["nodes"])
    return ExportedProgram(tuple(inputs), tuple(outputs), constants, nodes, types, updates)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a name that is not text")
    return value


def _type(name: str, meta: Mapping[str, Any], file: str) -> ProgramType:
    dtype = DTYPES.get(meta["dtype"], f"type {meta['dtype']}")
    shape = tuple(_size(item) for item in meta["sizes"])
    if 4 * math.prod(n for n in shape if isinstance(n, int)) > TENSOR_BYTES_MAX:
        raise ModelError.broken(f"{name!r} has the shape {list(shape)}.", file)
    return ProgramType(dtype, shape)


def _size(item: Mapping[str, Any]) -> int | str:
    if "as_int" not in item:
        return str(item["as_expr"]["expr_str"])
    size = int(item["as_int"])
    if size < 0:
        raise ValueError("a negative size")
    return size


def _input_name(arg: Mapping[str, Any], file: str) -> str:
    value = _argument(arg)
    if not isinstance(value, Ref):
        what = "the program has an input that is not a tensor."
        raise ModelError(what, where=file, hint="give such values when the model is constructed.")
    return value.name


def _output_names(arg: Mapping[str, Any], file: str) -> list[str]:
    value = _argument(arg)
    if isinstance(value, Ref):
        return [value.name]
    if value is None:
        return []
    raise ModelError("the program has a result that is not a tensor.", where=file)


def _node(item: Mapping[str, Any]) -> ProgramNode:
    args = {_text(row["name"]): _argument(row["arg"]) for row in item["inputs"]}
    outputs: list[str | None] = []
    for row in item["outputs"]:
        value = _argument(row)
        for part in value if isinstance(value, list) else [value]:
            outputs.append(part.name if isinstance(part, Ref) else None)
    target = _text(item["target"]).removeprefix("torch.ops.")
    return ProgramNode(target, args, tuple(outputs))


def _argument(row: Mapping[str, Any]) -> Argument:
    ((kind, value),) = row.items()
    match kind:
        case "as_tensor":
            return Ref(_text(value["name"]))
        case "as_tensors":
            return [Ref(_text(item["name"])) for item in value]
        case "as_optional_tensors":
            return [_argument(item) for item in value]
        case "as_none":
            return None
        case "as_int" | "as_scalar_type":
            return int(value)
        case "as_float":
            return float(value)
        case "as_bool":
            return bool(value)
        case "as_string":
            return str(value)
        case "as_ints":
            return [int(item) for item in value]
        case "as_floats":
            return [float(item) for item in value]
        case "as_bools":
            return [bool(item) for item in value]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _symbolic(value)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_symbolic(item) for item in value]
    return Unreadable(str(kind).removeprefix("as_"))


def _symbolic(value: Mapping[str, Any]) -> Argument:
    ((kind, item),) = value.items()
    return Ref(_text(item)) if kind == "as_name" else _argument({kind: item})


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
                    raise ModelError.broken(f"{name!r} is read before it is defined.", where)
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
