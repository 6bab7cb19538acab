"""Conversion of an `OnnxModel` into an `IRModule`.

Nodes with constant inputs are folded, functions are inlined, and operators between
DequantizeLinear and QuantizeLinear are fused where possible. All unsupported items are
reported at once.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, UINT8, UINT64, find_dtype
from firmwright.base.errors import NotSupportedError, UnsupportedError, UnsupportedItem
from firmwright.base.grouping import group_pairs
from firmwright.frontends.onnx import function_inlining, qdq, qdq_fusion
from firmwright.frontends.onnx.constant_folding import ConstantFolder
from firmwright.frontends.onnx.function_inlining import InliningBudget
from firmwright.frontends.onnx.fusion import Fusion, check_gemm_bias
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.frontends.onnx.operators.registry import (
    onnx_importers,
    unsupported_reason,
)
from firmwright.frontends.onnx.protobuf import (
    Message,
    attribute_value,
    quoted_name,
    tensor_array,
)
from firmwright.frontends.onnx.qdq import (
    DequantizedValue,
    QdqOperands,
    QdqValue,
    QuantizedValue,
)
from firmwright.frontends.onnx.qdq_data_movement import (
    DATA_MOVEMENT_OPERATORS,
    fuse_data_movement,
)
from firmwright.frontends.onnx.qdq_lookup_tables import (
    ELEMENTWISE_OPERATORS,
    lower_to_lut,
    requantize_by_lut,
)
from firmwright.frontends.onnx.qlinear import QLINEAR_OPERATORS, fuse_qlinear
from firmwright.frontends.onnx.reader import (
    OnnxModel,
    OnnxValueInfo,
    read_onnx,
    unneeded_results,
)
from firmwright.ir.core import Span
from firmwright.ir.graph.attributes.control import CustomAttrs
from firmwright.ir.graph.attributes.movement import TransposeAttrs
from firmwright.ir.graph.nodes import (
    Call,
    Function,
    State,
    TensorType,
    Value,
    unique_name,
)
from firmwright.ir.graph.op_call import CustomOpPredicate, accept_no_custom_op
from firmwright.ir.module import IRModule
from firmwright.ir.settings import ModelOrigin
from firmwright.ops.opdef import OpTable

log = logging.getLogger(__name__)


def import_onnx(
    data: bytes,
    file: str,
    name: str,
    ops: OpTable,
    is_claimed: CustomOpPredicate = accept_no_custom_op,
) -> IRModule:
    """Return the module of a preprocessed model; raise UnsupportedError for unsupported
    items.
    """
    model, digest = read_onnx(data, file), hashlib.sha256(data).hexdigest()
    module = import_onnx_model(model, digest, name, ops, is_claimed=is_claimed)
    return module.with_numerics("onnx")


def import_onnx_model(
    model: OnnxModel,
    digest: str,
    name: str,
    ops: OpTable,
    items: Sequence[UnsupportedItem] = (),
    hint: str = "",
    is_claimed: CustomOpPredicate = accept_no_custom_op,
) -> IRModule:
    """Return the module of a decoded model; report its unsupported items with
    `items`.
    """
    importer = _OnnxImporter(
        model, CallEmitter(ops), cache(is_claimed), hint, list(items)
    )
    functions = {"main": importer.run()}
    constants = importer.emitter.constants
    return IRModule(
        name, functions, constants, entry_name="main", origin=ModelOrigin(digest)
    )


@dataclass(slots=True)
class _OnnxImporter:
    model: OnnxModel
    emitter: CallEmitter
    is_claimed: CustomOpPredicate = accept_no_custom_op
    hint: str = ""
    items: list[UnsupportedItem] = field(default_factory=list)
    tensors: dict[str, QdqValue | None] = field(default_factory=dict)
    readers: dict[str, list[Message]] = field(default_factory=dict)
    fused_outputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    unneeded: set[str] = field(default_factory=set)
    new_names: dict[str, str] = field(default_factory=dict)
    materialized: dict[int, tuple[QdqValue, OnnxValue]] = field(default_factory=dict)
    folder: ConstantFolder = field(default_factory=ConstantFolder)
    index: int = 0
    inlining: InliningBudget = field(default_factory=InliningBudget)

    def run(self) -> Function:
        for name, array in self.model.initializers.items():
            self.tensors[name] = ConstantValue(array, name)
        self._enter(self.model.nodes, self.model.outputs)
        self.unneeded = unneeded_results(self.model)
        params = [self._import_input(item) for item in self.model.inputs]
        current = {name: self._import_state(name) for name in self.model.updates}
        with np.errstate(all="ignore"):  # infinity and NaN are values among floats
            for index, node in enumerate(self.model.nodes):
                self.index = index
                self._import_or_refuse(node, self.model.opset)
        results = [self._import_output(item) for item in self.model.outputs]
        following: dict[str, Value | None] = {}
        for name, source in self.model.updates.items():
            following[name] = self._next_state(source, following.values())
        if self.items:
            raise UnsupportedError(self.items, where=self.model.file, hint=self.hint)
        body = tuple(map(self._rename_call, self.emitter.calls))
        states = tuple(
            State(current[name], self._rename_value(value), f"{name}/initial")
            for name, value in following.items()
            if value is not None
        )
        named = tuple(map(self._rename_value, filter(None, results)))
        return Function("main", tuple(filter(None, params)), body, named, state=states)

    def _refuse(self, op: str, where: str, why: str) -> None:
        if (item := UnsupportedItem(op, where, why)) not in self.items:
            self.items.append(item)

    def _import_input(self, item: OnnxValueInfo) -> Value | None:
        self.tensors[item.name] = None
        where, dtype = f"input {item.name}", find_dtype(item.dtype)
        if dtype is None or dtype == UINT64:
            self._refuse("TYPE", where, f"element type {item.dtype}")
            return None
        shape = self._shape(item, where)
        if shape is None:
            return None
        if 0 in shape:
            # An input without elements carries only its type.
            self.tensors[item.name] = ConstantValue(
                np.zeros(shape, dtype.np), item.name
            )
            return None
        value = Value(
            unique_name(item.name, self.emitter.names), TensorType(shape, dtype)
        )
        self.tensors[item.name] = value
        return value

    def _import_state(self, name: str) -> Value:
        initial = ConstantValue(self.model.initializers[name], f"{name}/initial")
        self.emitter.value(initial)
        value = Value(unique_name(name, self.emitter.names), initial.type)
        self.tensors[name] = value
        return value

    def _next_state(self, name: str, taken: Iterable[Value | None]) -> Value | None:
        definition = self.tensors.get(name)
        if definition is None:
            return None
        self.emitter.stem = name
        value = qdq.materialize_value(self.emitter, definition)
        makers = (call.op for call in self.emitter.calls if value in call.outputs)
        if (
            isinstance(value, Value)
            and next(makers, "reshape") != "reshape"
            and value not in taken
        ):
            return value
        # A copy, because the value is an input, a constant, another state or a view.
        return self.emitter.copy(value)

    def _shape(self, item: OnnxValueInfo, where: str) -> tuple[int, ...] | None:
        if item.shape is None:
            why = f"no shape; add --input-shape {item.name}=SIZE,SIZE,..."
            self._refuse("DYNAMIC_SHAPE", where, why)
            return None
        open_axes = [
            axis for axis, size in enumerate(item.shape) if not isinstance(size, int)
        ]
        # An open batch size becomes 1.
        if open_axes == [0]:
            sizes = ",".join(map(str, (1, *item.fixed_sizes)))
            symbol = f" {item.shape[0]}" if str(item.shape[0]).isidentifier() else ""
            log.warning(
                "%s: the batch size%s of input %s is taken as 1; --input-shape %s=%s "
                "states it.",
                self.model.file,
                symbol,
                item.name,
                item.name,
                sizes,
                extra={"once": True},
            )
            return (1, *item.fixed_sizes)
        if open_axes:
            names = ", ".join(f"{axis} ({item.shape[axis]})" for axis in open_axes)
            sizes = ",".join(map(str, item.shape))
            why = (
                f"the size of axis {names} is open; set it by --input-shape "
                f"{item.name}={sizes}"
            )
            self._refuse("DYNAMIC_SHAPE", where, why)
            return None
        return item.fixed_sizes

    def _import_output(self, item: OnnxValueInfo) -> Value | None:
        definition = self.tensors.get(item.name)
        if definition is None:
            return None
        self.emitter.span = Span(self.model.file, 0, self.index, item.name)
        self.emitter.stem = item.name
        tensor = qdq.materialize_value(self.emitter, definition)
        if tensor.type.dtype == UINT64:
            self._refuse("TYPE", f"output {item.name}", "element type uint64")
            return None
        computed = {value.name for call in self.emitter.calls for value in call.outputs}
        output_names = set(self.new_names.values())
        if isinstance(definition, DequantizedValue | QuantizedValue) and isinstance(
            tensor, Value
        ):
            self._name(tensor, item.name)
        is_own = isinstance(tensor, Value) and tensor.name in computed
        if not is_own or self.new_names.get(tensor.name) != item.name:
            try:
                tensor = self.emitter.copy(tensor)
            except NotSupportedError as error:
                self._refuse("OUTPUT", item.name, str(error))
                return None
            if item.name not in output_names and item.name not in self.emitter.names:
                self.new_names[tensor.name] = unique_name(item.name, self.emitter.names)
        assert isinstance(tensor, Value)
        return tensor

    def _name(self, value: Value, name: str) -> None:
        """Name a value as in the model, unless it has a name already or the name is in
        use.
        """
        if value.name not in self.new_names and name not in self.emitter.names:
            self.new_names[value.name] = unique_name(name, self.emitter.names)

    def _import_or_refuse(self, node: Message, opset: int) -> None:
        if node.output and node.output[0] in self.fused_outputs:
            return  # fused into an earlier node
        span = Span(self.model.file, 0, self.index, next(iter(node.output), ""))
        try:
            results = self._import_node(node, opset, span)
        except NotSupportedError as error:
            results, first = None, next(iter(node.output), "")
            if first not in self.unneeded:
                title = self.model.titles.get(first, node.op_type)
                self._refuse(title, f"{span}{quoted_name(node)}", str(error))
        if results is None:
            self.tensors.update(dict.fromkeys(node.output))
            return
        for name, tensor in zip(node.output, results, strict=False):
            if name:
                self._define(name, tensor)

    def _define(self, name: str, definition: QdqValue) -> None:
        self.tensors[name] = definition
        tensor = (
            definition.value if isinstance(definition, QuantizedValue) else definition
        )
        if not isinstance(tensor, Value) or tensor.constant is not None:
            return
        # A value keeps its first name; inputs keep their own.
        calls = reversed(self.emitter.calls)
        maker = next(
            (call for call in calls if any(v is tensor for v in call.outputs)), None
        )
        if maker is None:
            return
        self._name(tensor, name)
        source, rank = maker.inputs[0], len(tensor.type.shape)
        is_own = source is not None and source.name.startswith(f"{self.emitter.stem}/")
        first = TransposeAttrs(perm=(0, rank - 1, *range(1, rank - 1)))
        is_channels_first = maker.attrs == first
        if source is not None and is_own and is_channels_first:
            # Usually only the operator's own result, with channels last, remains.
            self._name(source, f"{name}/moved")

    def _import_node(
        self, node: Message, opset: int, span: Span
    ) -> Sequence[QdqValue] | None:
        inputs = [self.tensors.get(name) if name else None for name in node.input]
        blocked = any(
            name and x is None for name, x in zip(node.input, inputs, strict=True)
        )
        standard = node.domain in ("", "ai.onnx")
        full_name = node.op_type if standard else f"{node.domain}:{node.op_type}"
        importer = onnx_importers().get(full_name)
        if (
            importer is None
            and not standard
            and self.is_claimed(node.domain, node.op_type)
        ):
            importer = self._emit_custom
        constants = None if blocked else self.folder.fold(node, opset, inputs)
        if constants is not None:
            return constants
        if importer is None and not function_inlining.has_function_definition(
            node, opset, self.model.functions
        ):
            raise NotSupportedError(unsupported_reason(node.op_type))
        if function_inlining.has_changed_semantics(node, opset):
            raise NotSupportedError(
                f"as it was in opset {opset}; convert the model to a newer one"
            )
        if blocked:
            return None
        self.emitter.span, self.emitter.stem = (
            span,
            next(iter(node.output), "") or node.op_type,
        )
        if importer is None:
            return self._inline_definition(node, opset, inputs)
        attrs = {item.name: attribute_value(item) for item in node.attribute}
        context = NodeContext(
            node, attrs, (), opset, self.emitter, self._import_subgraph
        )
        fused = self._fuse_integer_operator(context, importer, inputs)
        if fused is not None:
            return fused
        operands = tuple(self._materialize_all(inputs))
        function_inlining.check_element_types(node, opset, operands)
        results = importer(replace(context, inputs=operands))
        found = results if isinstance(results, tuple | list) else (results,)
        return found or self._inline_definition(node, opset, inputs)

    def _emit_custom(self, c: NodeContext) -> Results:
        """Emit a call of `custom`; its type rule or the file determines the result
        types.
        """
        value_infos = {item.name: item for item in self.model.values}
        declared = [
            value_infos[y].declared_type if y in value_infos else None
            for y in c.outputs
        ]
        attrs = CustomAttrs(
            domain=c.node.domain,
            name=c.node.op_type,
            data=json.dumps(c.attrs, sort_keys=True, default=str).encode().hex(),
        )
        results = self.emitter.multi_call(
            "custom",
            *c.inputs,
            declared=tuple(kind for kind in declared if kind is not None),
            attrs=attrs,
        )
        if len(results) != len(c.outputs):
            raise NotSupportedError(
                "neither the file nor a type rule determines its result types"
            )
        return results

    def _materialize_all(self, inputs: QdqOperands) -> list[OnnxValue | None]:
        tensors: list[OnnxValue | None] = []
        for value in inputs:
            if not isinstance(value, QuantizedValue | DequantizedValue):
                tensors.append(value)
                continue
            if id(value) not in self.materialized:
                # The key's object is stored too, because ids are unique among living
                # objects only.
                self.materialized[id(value)] = (
                    value,
                    qdq.materialize_value(self.emitter, value),
                )
            tensors.append(self.materialized[id(value)][1])
        return tensors

    def _fuse_integer_operator(
        self, c: NodeContext, importer: Importer, inputs: QdqOperands
    ) -> Sequence[QdqValue] | None:
        """Return integer results, [] if already defined, or None if floats are
        needed.
        """
        op = c.node.op_type
        if op == "DequantizeLinear":
            return self._import_dequantize(c, inputs)
        if op == "QuantizeLinear":
            return self._import_quantize(c, inputs)
        if op in QLINEAR_OPERATORS:
            return fuse_qlinear(c, inputs, self._import_dequantize)
        if not any(isinstance(item, DequantizedValue) for item in inputs):
            return None
        if op == "Gemm":
            check_gemm_bias(c, inputs)
        if op in DATA_MOVEMENT_OPERATORS:
            moved = fuse_data_movement(importer, c, inputs)
            if moved is not None or op not in qdq_fusion.FUSION_RULES:
                return moved
        chain = qdq.following_quantize(c.node, self._only_reader, self.tensors)
        if chain is None:
            return None
        bounds, target, names = chain
        fusion, fused = Fusion(c, inputs, target, bounds), None
        if op in ELEMENTWISE_OPERATORS:
            fused = lower_to_lut(importer, fusion)
        if fused is None and op in qdq_fusion.FUSION_RULES:
            fused = qdq_fusion.try_fuse(fusion)
        if fused is None:
            return None
        self._define(
            names[-1], QuantizedValue(self.emitter.value(fused), target.is_unsigned)
        )
        self.fused_outputs.update(names)
        return []

    def _only_reader(self, node: Message) -> Message | None:
        if len(node.output) != 1 or node.output[0] in self.outputs:
            return None
        reader, *others = self.readers.get(node.output[0], [None])
        return None if others else reader

    def _import_dequantize(
        self, c: NodeContext, inputs: QdqOperands
    ) -> Sequence[QdqValue] | None:
        x, scale, point, *_ = (*inputs, None)
        if isinstance(x, ConstantValue):
            weights = qdq.attach_quantization(x, scale, point, int(c.attr("axis", 1)))
            if weights is None or c.attr("block_size", 0):
                return None
            is_scalar = qdq.are_scalars(scale, point)
            return [DequantizedValue(weights, x.array.dtype.name, is_scalar)]
        scaling = qdq.qdq_parameters(scale, point)
        if scaling is None or c.attr("output_dtype", 0) not in (0, 1):
            return None
        if isinstance(x, Value) and x.type.dtype in (INT8, UINT8):
            if scaling.is_unsigned != (x.type.dtype == UINT8):
                return None
            stored = qdq.as_quantized(self.emitter, x, scaling)
            return [DequantizedValue(stored, scaling.integer_type, scaling.is_scalar)]
        if isinstance(x, QuantizedValue) and x.quantization == scaling.quantization:
            return [DequantizedValue(x, scaling.integer_type, scaling.is_scalar)]
        return None

    def _import_quantize(
        self, c: NodeContext, inputs: QdqOperands
    ) -> Sequence[QdqValue] | None:
        x, scale, point, *_ = (*inputs, None)
        scaling = qdq.qdq_parameters(scale, point, qdq.BY_RECIPROCAL in c.attrs)
        if scaling is None or set(c.attrs) - qdq.QUANTIZE_ATTRIBUTES:
            return None
        if isinstance(x, DequantizedValue) and isinstance(x.source, QuantizedValue):
            same = x.source.quantization == scaling.quantization
            if same and x.source.is_unsigned == scaling.is_unsigned:
                return [x.source]
            other = requantize_by_lut(c, x.source.value, scaling)
            return [QuantizedValue(other, scaling.is_unsigned)]
        (reals,) = self._materialize_all([x])
        if not isinstance(reals, Value) or reals.type.dtype != FLOAT32:
            return None
        return [qdq.emit_quantize(self.emitter, reals, scaling)]

    def _inline_definition(
        self, node: Message, opset: int, inputs: QdqOperands
    ) -> Results | None:
        operands = self._materialize_all(inputs)
        definition = function_inlining.function_definition(
            node, opset, operands, self.model.functions
        )
        version, body = function_inlining.inline_function(node, definition, opset)
        before = len(self.items)
        with self.inlining.level(len(body)):
            for inner in body:
                self._import_or_refuse(inner, version)
                if len(self.items) > before:
                    raise NotSupportedError(self.items.pop().why)
        return []  # importing the inner nodes has defined the outputs

    def _enter(
        self, nodes: Sequence[Message], outputs: Iterable[Message | OnnxValueInfo]
    ) -> None:
        """Start a graph, in which only its own nodes read its values."""
        self.readers = group_pairs(
            (name, node) for node in nodes for name in node.input
        )
        self.fused_outputs, self.outputs = set(), {x.name for x in outputs}

    def _import_subgraph(
        self, graph: Message, bound: Mapping[str, OnnxValue]
    ) -> list[OnnxValue]:
        outer = self.tensors, self.readers, self.fused_outputs, self.outputs
        constants = {
            x.name: ConstantValue(tensor_array(x), x.name) for x in graph.initializer
        }
        self.tensors = {**self.tensors, **bound, **constants}
        self._enter(graph.node, graph.output)
        with self.inlining.level(len(graph.node)):
            for node in graph.node:
                self._import_or_refuse(node, self.model.opset)
        results = [self.tensors.get(item.name) for item in graph.output]
        self.tensors, self.readers, self.fused_outputs, self.outputs = outer
        if any(result is None for result in results):
            raise NotSupportedError("its body is not supported")
        return [item for item in self._materialize_all(results) if item is not None]

    def _rename_call(self, call: Call) -> Call:
        inputs = tuple(
            None if v is None else self._rename_value(v) for v in call.inputs
        )
        return replace(
            call, inputs=inputs, outputs=tuple(map(self._rename_value, call.outputs))
        )

    def _rename_value(self, value: Value) -> Value:
        return replace(value, name=self.new_names.get(value.name, value.name))
