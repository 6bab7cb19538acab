"""State shared by the import of all subgraphs of one model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from firmwright.base.errors import UnsupportedItem
from firmwright.frontends.tflite.variables import VariableTable
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


@dataclass
class ImportSession:
    """Tables, constants and functions of the import, and the model's unsupported items.

    `reached` are the indices of the imported subgraphs; `branches` has the variables and the
    function of each subgraph run by another one.
    """

    raw: RawModel
    imports: Mapping[str, OpDef]
    ops: OpTable
    is_claimed: CustomOpPredicate = accept_no_custom_op
    constants: dict[str, Constant] = field(default_factory=dict)
    items: list[UnsupportedItem] = field(default_factory=list)
    reached: set[int] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    branches: dict[int, tuple[VariableTable, Function]] = field(default_factory=dict)

    def importer(self, name: str) -> Callable[[ImportContext], ImportedCall] | None:
        opdef = self.imports.get(f"tflite:{name}")
        if opdef is not None:
            return opdef.imports[f"tflite:{name}"]
        is_custom = name.startswith("custom:")
        return import_custom if is_custom and self.is_claimed("", name[len("custom:") :]) else None

    def refuse(self, op: str, where: str, why: str) -> None:
        self.items.append(UnsupportedItem(op, where, why))

    def constant(self, constant: Constant) -> str:
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
            why = f"more entry points ({names}): select one, as {raw.file}:{min(keys)}"
        else:
            why = f"{unused} subgraph{'s' * (unused > 1)} that the first one does not run"
        self.refuse("SUBGRAPHS", raw.file, why)
