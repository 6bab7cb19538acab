"""State shared by the import of all subgraphs of one model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from firmwright.base.errors import UnsupportedItem
from firmwright.frontends.tflite.variables import Variable, VariableTable
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.op_import import (
    CustomOpPredicate,
    ImportContext,
    ImportedCall,
    accept_no_custom_op,
)
from firmwright.ir.graph.opdef import OpDef, OpTable
from firmwright.ir.raw_model import RawModel
from firmwright.ops.custom import import_custom


class ImportedSubgraph(Protocol):
    """A subgraph that other subgraphs run."""

    variables: VariableTable

    def branch(
        self,
        name: str,
        function: Function,
        variables: Mapping[Hashable, Variable],
        assigned: Sequence[Hashable],
    ) -> Function: ...


@dataclass
class ImportSession:
    """Tables, constants and functions of the import, and the unsupported items of the whole model.

    `reached` are the indices of the subgraphs that have been imported.
    """

    raw: RawModel
    imports: Mapping[str, OpDef]
    ops: OpTable
    is_claimed: CustomOpPredicate = accept_no_custom_op
    constants: dict[str, Constant] = field(default_factory=dict)
    items: list[UnsupportedItem] = field(default_factory=list)
    reached: set[int] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    branches: dict[int, tuple[ImportedSubgraph, Function]] = field(default_factory=dict)

    def importer(self, name: str) -> Callable[[ImportContext], ImportedCall] | None:
        """Return the importer of an operator; None if there is none."""
        opdef = self.imports.get(f"tflite:{name}")
        if opdef is not None:
            return opdef.imports[f"tflite:{name}"]
        is_custom = name.startswith("custom:")
        return import_custom if is_custom and self.is_claimed("", name[len("custom:") :]) else None

    def refuse(self, op: str, where: str, why: str) -> None:
        self.items.append(UnsupportedItem(op, where, why))

    def constant(self, constant: Constant) -> str:
        """Add a constant under a unique name and return the name."""
        name = constant.name
        while name in self.constants:
            name += "'"
        self.constants[name] = replace(constant, name=name)
        return name

    def check(self, raw: RawModel, *, chosen: bool) -> None:
        """Refuse subgraphs that are never run, unless the user has `chosen` the entry point."""
        unused = len(raw.subgraphs) - len(self.reached)
        if not unused or chosen or self.items:
            return
        keys = {item.key for item in raw.signatures if item.subgraph not in self.reached}
        if keys:
            names = ", ".join(item.key for item in raw.signatures)
            why = f"entry points of its own ({names}): name one, as {raw.file}:{min(keys)}"
        else:
            what = f"{unused} subgraph" + ("s" if unused > 1 else "")
            why = f"{what} that the first one does not run"
        self.refuse("SUBGRAPHS", raw.file, why)
