"""Conversion of an `ExportedProgram` into an `IRModule` through the ONNX importer."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

import firmwright.frontends.pytorch.operators as package
from firmwright.base.errors import (
    OPERATOR_IS_UNSUPPORTED,
    NotSupportedError,
    UnsupportedItem,
)
from firmwright.base.extensions import merge_tables
from firmwright.frontends.onnx.importer import import_onnx_model
from firmwright.frontends.onnx.protobuf import SyntheticNode
from firmwright.frontends.onnx.reader import OnnxModel, OnnxValueInfo
from firmwright.frontends.pytorch.operators.complex_numbers import (
    as_pairs,
    is_complex,
)
from firmwright.frontends.pytorch.program import (
    ExportedProgram,
    ProgramNode,
    Ref,
    read_program,
    refs_in,
)
from firmwright.frontends.pytorch.sized_program import with_sizes
from firmwright.frontends.pytorch.translation import (
    NodeTranslation,
    NodeWriter,
    Translator,
    Translators,
)
from firmwright.ir.graph import unique_name
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import OpTable

ONNX_OPSET = 21
"""The opset of the nodes that the translators make."""
_HINT = (
    "`program.run_decompositions()` before torch.export.save replaces many operators by"
    " basic ones."
)
_COMPLEX_REASON = (
    "an input, result or state of complex numbers, which torch.view_as_real turns into"
    " floats"
)
_VIEWS = frozenset(
    {
        "alias",
        "chunk",
        "contiguous",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "movedim",
        "narrow",
        "permute",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "swapaxes",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
    }
)
"""Operators with results in the memory of their first argument."""


def import_pytorch(
    data: bytes,
    file: str,
    name: str,
    ops: OpTable,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> IRModule:
    """Return the module of a program for `shapes` of its inputs with dynamic sizes.

    Raises ModelError, UsageError or UnsupportedError.
    """
    program = read_program(data, file)
    if shapes or program.bounds:
        program = with_sizes(program, shapes, file)
    model, items = translate_program(program, file)
    digest = hashlib.sha256(data).hexdigest()
    module = import_onnx_model(model, digest, name, ops, items, _HINT)
    return module.with_numerics("onnx")


def translate_program(
    program: ExportedProgram, file: str
) -> tuple[OnnxModel, list[UnsupportedItem]]:
    return _ProgramTranslator(program, file).run()


class _ProgramTranslator:
    def __init__(self, program: ExportedProgram, file: str) -> None:
        self.program, self.file = program, file
        self.writer = NodeWriter(program)
        self.items: list[UnsupportedItem] = []
        self.roots: dict[str, str] = {}
        self.last_reads: dict[str, int] = {}
        for index, node in enumerate(program.nodes):
            for value in node.args.values():
                self.last_reads |= dict.fromkeys(refs_in(value), index)
        self.last_reads |= dict.fromkeys(program.outputs, len(program.nodes))

    def run(self) -> tuple[OnnxModel, list[UnsupportedItem]]:
        program, writer = self.program, self.writer
        writer.taken.update(program.types)
        writer.read.update(self.last_reads)
        for name in (*program.inputs, *program.constants):
            writer.names[name] = name
        for name, array in program.constants.items():
            writer.constants[name] = as_pairs(array)
        for name in dict.fromkeys(
            [*program.inputs, *program.outputs, *program.updates]
        ):
            if is_complex(program.types[name].dtype):
                where = f"{self.file}: {name}"
                self.items.append(UnsupportedItem("complex", where, _COMPLEX_REASON))
        for index, node in enumerate(program.nodes):
            self.translate(index, node)
        updates: dict[str, str] = {}
        for name in program.constants:
            if name in program.updates or writer.names[name] != name:
                updates[name] = writer.names[program.updates.get(name, name)]
        outputs = tuple(map(self.output, program.outputs))
        model = OnnxModel(
            self.file,
            {"": ONNX_OPSET},
            tuple(map(self.info, program.inputs)),
            outputs,
            writer.constants,
            tuple(writer.nodes),
            titles=writer.titles,
            updates=updates,
        )
        return model, self.items

    def info(self, name: str, own: str = "") -> OnnxValueInfo:
        kind = self.program.types[name]
        return OnnxValueInfo(own or name, kind.dtype, kind.shape)

    def output(self, name: str) -> OnnxValueInfo:
        """Return a result; an input, constant or repeated one gets a new name."""
        source = self.writer.names[name]
        own = name
        is_given = name in self.program.inputs or name in self.program.constants
        if source != name or is_given:
            own = unique_name(f"{name}/result", self.writer.taken)
            self.writer.nodes.append(SyntheticNode("Identity", (source,), (own,)))
        return self.info(name, own)

    def translate(self, index: int, node: ProgramNode) -> None:
        writer, first = self.writer, len(self.writer.nodes)
        stem = next((name for name in node.outputs if name), node.target)
        table = "COMPLEX_TRANSLATORS" if self.has_complex(node) else "TRANSLATORS"
        translator = find_translator(node.target, table)
        results: str | Sequence[str]
        try:
            if translator is None:
                raise NotSupportedError(OPERATOR_IS_UNSUPPORTED)
            self.check_memory(index, node)
            results = translator(NodeTranslation(node, writer, stem))
        except (
            NotSupportedError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
        ) as error:
            known = isinstance(error, NotSupportedError)
            reason = str(error) if known else f"invalid arguments ({error!s:.60})"
            where = f"{self.file}: {stem}"
            self.items.append(UnsupportedItem(node.target, where, reason))
            del writer.nodes[first:]
            results = [name or "" for name in node.outputs]
        values = [results] if isinstance(results, str) else list(results)
        created: set[str] = set()
        for item in writer.nodes[first:]:
            created.update(item.output)
        for name, result in zip(node.outputs, values, strict=False):
            if name is None:
                continue
            if result in created:
                writer.rename(first, result, name)
                values = [name if item == result else item for item in values]
                created.discard(result)
                result = name
            writer.names[name] = result
        for item in writer.nodes[first:]:
            writer.titles.update(dict.fromkeys(item.output, node.target))
        if is_in_place(node):
            mutated = node.args.get("self") or node.args.get("input")
            if isinstance(mutated, Ref) and node.outputs and node.outputs[0]:
                writer.names[mutated.name] = writer.names[node.outputs[0]]

    def has_complex(self, node: ProgramNode) -> bool:
        """Return whether an operand or a result consists of complex numbers."""
        names = [*filter(None, node.outputs)]
        for value in node.args.values():
            names += refs_in(value)
        types = self.program.types
        return any(is_complex(types[name].dtype) for name in names if name in types)

    def check_memory(self, index: int, node: ProgramNode) -> None:
        """Record views; refuse a change of memory that another value shows later."""
        first = next(iter(node.args.values()), None)
        if not isinstance(first, Ref):
            return
        root = self.roots.get(first.name, first.name)
        if _operator(node) in _VIEWS:
            self.roots.update(dict.fromkeys(filter(None, node.outputs), root))
        if not is_in_place(node):
            return
        group = {name for name, base in self.roots.items() if base == root}
        others = (group | {root}) - {first.name}
        is_shared = any(self.last_reads.get(name, -1) > index for name in others)
        if is_shared or (first.name != root and root in self.program.constants):
            raise NotSupportedError("a change in place of a part of a tensor")
        self.roots.update(dict.fromkeys(filter(None, node.outputs), first.name))


def _operator(node: ProgramNode) -> str:
    return node.target.split(".")[1] if "." in node.target else node.target


def is_in_place(node: ProgramNode) -> bool:
    """Return whether the node changes its first argument, such as aten.relu_."""
    name = _operator(node)
    return name.endswith("_") and not name.startswith("__")


@cache
def translators(table: str = "TRANSLATORS") -> Translators:
    """Return the translators by target; names without a namespace are those of ATen.

    Those of operators with complex operands or results are in `COMPLEX_TRANSLATORS`.
    """
    merged = merge_tables(
        package, table, lambda extension: extension.pytorch_translators
    )
    by_target: dict[str, Translator] = {}
    for name, translator in merged.items():
        by_target[name if "." in name else f"aten.{name}"] = translator
    return by_target


def find_translator(target: str, table: str = "TRANSLATORS") -> Translator | None:
    """Return the translator of "aten.conv2d.default", also of an in-place form."""
    parts = target.split(".")
    base = ".".join(parts[:2])
    if not base.endswith("__"):
        base = base.removesuffix("_")
    full = ".".join((base, *parts[2:]))
    return translators(table).get(full) or translators(table).get(base)
