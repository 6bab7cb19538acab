"""State shared by the import of subgraphs, and advice for unsupported tensor types."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.errors import NotSupportedError, UnsupportedItem
from firmwright.base.resource_limits import WorkBudget, constant_budget
from firmwright.frontends.tflite.decoded_model import RawModel, RawTensor
from firmwright.frontends.tflite.node_context import Importer, plain_importer
from firmwright.frontends.tflite.operators.custom import CUSTOM_PREFIX, import_custom
from firmwright.frontends.tflite.operators.registry import (
    tflite_importers,
    unsupported_reason,
)
from firmwright.frontends.tflite.signed_tensors import BYTE_TABLE
from firmwright.frontends.tflite.variables import VariableTable
from firmwright.ir.core import Constant
from firmwright.ir.graph import CustomOpPredicate, Function, accept_no_custom_op
from firmwright.ops.opdef import OpTable

_FLEX = "custom:Flex"
_TRANSFORMS = {"FlexFFT", "FlexIFFT", "FlexIRFFT", "FlexRFFT", "FlexStridedSlice"}
"""Operators of `tf.signal`; its `dct` slices complex numbers."""


@dataclass
class ImportSession:
    """Tables, constants and functions of the import, and the model's unsupported items.

    `reached` are the indices of the imported subgraphs; `branches` has the variables
    and the function of each subgraph that another one runs.
    """

    raw: RawModel
    ops: OpTable
    is_claimed: CustomOpPredicate = accept_no_custom_op
    constants: dict[str, Constant] = field(default_factory=dict)
    items: list[UnsupportedItem] = field(default_factory=list)
    reached: set[int] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    branches: dict[int, tuple[VariableTable, Function]] = field(default_factory=dict)
    computed: WorkBudget = field(default_factory=constant_budget)

    def importer(self, name: str) -> Importer:
        if name == BYTE_TABLE:
            return plain_importer(BYTE_TABLE, 2)
        importer = tflite_importers().get(name)
        if importer is not None:
            return importer
        if self.is_claimed("", name.removeprefix(CUSTOM_PREFIX)):
            return Importer("custom", import_custom)
        raise NotSupportedError(unsupported_reason(name))

    def refuse(self, op: str, where: str, why: str) -> None:
        self.items.append(UnsupportedItem(op, where, why))

    def constant(self, constant: Constant) -> str:
        name = constant.name
        while name in self.constants:
            name += "'"
        self.constants[name] = replace(constant, name=name)
        return name

    def ordered_items(self) -> list[UnsupportedItem]:
        """Return the unsupported items, TensorFlow's own operators as one in front."""
        flex = [item for item in self.items if item.op.startswith(_FLEX)]
        if not flex:
            return self.items
        ops = {item.op.removeprefix("custom:") for item in flex}
        names = ", ".join(sorted(ops))
        what = "an operator" if len(ops) == 1 else "operators"
        why = (
            f"{names}: {what} of TensorFlow itself; convert the model without "
            "SELECT_TF_OPS, with operators that TFLite has"
        )
        if ops & _TRANSFORMS:
            why += (
                "; a product with a constant matrix can replace an inverse or cosine "
                "transform (docs/audio.md)"
            )
        rest = [item for item in self.items if item not in flex]
        return [UnsupportedItem("FLEX", self.raw.file, why), *rest]

    def check(self, raw: RawModel, *, chosen: bool) -> None:
        """Refuse further entry points, unless the user has `chosen` one."""
        if chosen or self.items:
            return
        keys = [s.key for s in raw.signatures if s.subgraph not in self.reached]
        if keys:
            names = ", ".join(item.key for item in raw.signatures)
            why = f"more entry points ({names}): select one, as {raw.file}:{min(keys)}"
            self.refuse("SUBGRAPHS", raw.file, why)


_HYBRID = (
    "floats with int8 weights (dynamic-range quantization): give the converter a "
    "representative dataset, so that activations are int8 too, or disable its "
    "optimizations"
)
_HALF = "float16 activations: convert the model to float32, or quantize it to int8"


def dtype_advice(inputs: Sequence[RawTensor], outputs: Sequence[RawTensor]) -> str:
    """Return reason and remedy for unsupported tensor types, "" for supported ones."""
    data = [tensor for tensor in inputs if tensor.buffer is None]
    weights = [tensor for tensor in inputs if tensor.buffer is not None]
    types = {tensor.dtype for tensor in (*data, *outputs)}
    if not types.isdisjoint(("float16", "bfloat16")):
        return _HALF
    if all(tensor.dtype != "float32" for tensor in data):
        return ""
    for tensor in weights:
        if tensor.dtype == "int8" and tensor.quantization is not None:
            return _HYBRID
    return ""
