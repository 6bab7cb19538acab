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
from functools import cache, partial

import numpy as np

from firmwright.base.dtypes import find_dtype
from firmwright.base.errors import NotSupportedError, UnsupportedError, UnsupportedItem
from firmwright.frontends.onnx import data_lengths, function_inlining, qdq, qdq_fusion
from firmwright.frontends.onnx.constant_folding import ConstantFolder
from firmwright.frontends.onnx.function_inlining import InliningBudget
from firmwright.frontends.onnx.fusion import Fusion, check_gemm_bias
from firmwright.frontends.onnx.narrow_floats import declared_operands, import_numbers
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
    Results,
)
from firmwright.frontends.onnx.node_schemas import (
    find_shape_error,
    own_domain,
)
from firmwright.frontends.onnx.open_sizes import (
    InputSizes,
    known_sizes,
    open_sizes_item,
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
from firmwright.frontends.onnx.qdq_boundaries import keep_integers, quantize_once
from firmwright.frontends.onnx.qdq_data_movement import (
    DATA_MOVEMENT_OPERATORS,
    fuse_data_movement,
)
from firmwright.frontends.onnx.qdq_lookup_tables import (
    ELEMENTWISE_OPERATORS,
    lower_to_lut,
)
from firmwright.frontends.onnx.qlinear import QLINEAR_OPERATORS, fuse_qlinear
from firmwright.frontends.onnx.reader import (
    OnnxModel,
    OnnxValueInfo,
    read_onnx,
    unneeded_results,
)
from firmwright.frontends.onnx.value_table import ValueTable
from firmwright.ir.core import Span
from firmwright.ir.graph.attributes.control import CustomAttrs
from firmwright.ir.graph.nodes import (
    Function,
    State,
    TensorType,
    Value,
    unique_name,
)
from firmwright.ir.graph.op_call import CustomOpPredicate, accept_no_custom_op
from firmwright.ir.graph.separate_results import separate_results
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
    """Return the module of a preprocessed model, or raise UnsupportedError."""
    model = read_onnx(data, file)
    digest = hashlib.sha256(data).hexdigest()
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
    """Return the module of a decoded model; its unsupported items join `items`."""
    emitter = CallEmitter(ops)
    values = ValueTable(emitter)
    importer = _OnnxImporter(
        model, emitter, values, cache(is_claimed), hint, list(items)
    )
    functions = {"main": importer.run()}
    origin = ModelOrigin(digest)
    return IRModule(
        name, functions, emitter.constants, entry_name="main", origin=origin
    )


@dataclass(slots=True)
class _OnnxImporter:
    model: OnnxModel
    emitter: CallEmitter
    values: ValueTable
    is_claimed: CustomOpPredicate = accept_no_custom_op
    hint: str = ""
    items: list[UnsupportedItem] = field(default_factory=list)
    open_inputs: list[InputSizes] = field(default_factory=list)
    empty_outputs: dict[str, str] = field(default_factory=dict)
    unneeded: set[str] = field(default_factory=set)
    folder: ConstantFolder = field(default_factory=ConstantFolder)
    index: int = 0
    inlining: InliningBudget = field(default_factory=InliningBudget)

    def run(self) -> Function:
        for name, array in self.model.initializers.items():
            self.values.tensors[name] = ConstantValue(array, name)
        self.values.enter(self.model.nodes, self.model.outputs)
        self.unneeded = unneeded_results(self.model)
        params = [self._import_input(item) for item in self.model.inputs]
        if self.open_inputs:
            self.items.append(open_sizes_item(self.open_inputs))
        current = {name: self._import_state(name) for name in self.model.updates}
        with np.errstate(all="ignore"):  # infinity and NaN are values among floats
            for index, node in enumerate(self.model.nodes):
                self.index = index
                self._import_or_refuse(node, self.model.opset)
        results = [self._import_output(item) for item in self.model.outputs]
        self._omit_empty_outputs(is_model=any(results))
        outputs = {x.name: self.values.tensors.get(x.name) for x in self.model.outputs}
        results += data_lengths.count_outputs(self.emitter, outputs)
        following: dict[str, Value | None] = {}
        for name, source in self.model.updates.items():
            following[name] = self._next_state(source, following.values())
        if self.items:
            raise UnsupportedError(self.items, where=self.model.file, hint=self.hint)
        body = tuple(map(self.values.renamed_call, self.emitter.calls))
        states: list[State] = []
        for name, value in following.items():
            if value is not None:
                renamed = self.values.renamed(value)
                states.append(State(current[name], renamed, f"{name}/initial"))
        named = tuple(map(self.values.renamed, filter(None, results)))
        inputs = tuple(filter(None, params))
        graph = Function("main", inputs, body, named, state=tuple(states))
        return separate_results(graph)

    def _omit_empty_outputs(self, is_model: bool) -> None:
        """Warn of outputs without elements, or refuse them if there are no others."""
        for name, why in self.empty_outputs.items():
            if is_model:
                message = "%s: output %s has no elements; the firmware omits it."
                log.warning(message, self.model.file, name)
            else:
                self._refuse("OUTPUT", name, why)

    def _refuse(self, op: str, where: str, why: str) -> None:
        item = UnsupportedItem(op, where, why)
        if item not in self.items:
            self.items.append(item)

    def _import_input(self, item: OnnxValueInfo) -> Value | None:
        tensors = self.values.tensors
        tensors[item.name] = None
        where = f"input {item.name}"
        dtype = find_dtype(item.dtype)
        if dtype is None:
            self._refuse("TYPE", where, f"element type {item.dtype}")
            return None
        shape = self._shape(item, where)
        if shape is None:
            return None
        if 0 in shape:
            # An input without elements carries only its type.
            tensors[item.name] = ConstantValue(np.zeros(shape, dtype.np), item.name)
            return None
        name = unique_name(item.name, self.emitter.names)
        value = Value(name, TensorType(shape, dtype))
        tensors[item.name] = value
        return value

    def _import_state(self, name: str) -> Value:
        initial = ConstantValue(self.model.initializers[name], f"{name}/initial")
        self.emitter.value(initial)
        value = Value(unique_name(name, self.emitter.names), initial.type)
        self.values.tensors[name] = value
        return value

    def _next_state(self, name: str, taken: Iterable[Value | None]) -> Value | None:
        definition = self.values.tensors.get(name)
        if definition is None:
            return None
        self.emitter.stem = name
        value = qdq.materialize_value(self.emitter, definition)
        makers = (call.op for call in self.emitter.calls if value in call.outputs)
        is_computed = next(makers, "reshape") != "reshape"
        if isinstance(value, Value) and is_computed and value not in taken:
            return value
        # A copy, because the value is an input, a constant, another state or a view.
        return self.emitter.copy(value)

    def _shape(self, item: OnnxValueInfo, where: str) -> tuple[int, ...] | None:
        if item.shape is None:
            why = f"no shape; add --input-shape {item.name}=SIZE,SIZE,..."
            self._refuse("DYNAMIC_SHAPE", where, why)
            return None
        found = known_sizes(item.name, item.shape, self.model.implied)
        if found.fixed is None:
            self.open_inputs.append(found)
        else:
            found.warn_of_assumption(self.model.file)
        return found.fixed

    def _import_output(self, item: OnnxValueInfo) -> Value | None:
        definition = self.values.tensors.get(item.name)
        if definition is None:
            return None
        self.emitter.span = Span(self.model.file, 0, self.index, item.name)
        self.emitter.stem = item.name
        tensor = qdq.materialize_value(self.emitter, definition)
        try:
            _ = tensor.type.dtype
        except NotSupportedError as error:
            self._refuse("TYPE", f"output {item.name}", str(error))
            return None
        computed: set[str] = set()
        for call in self.emitter.calls:
            computed.update(value.name for value in call.outputs)
        new_names = self.values.new_names
        output_names = set(new_names.values())
        is_converted = not isinstance(definition, Value | ConstantValue)
        if is_converted and isinstance(tensor, Value):
            self.values.name(tensor, item.name)
        is_own = isinstance(tensor, Value) and tensor.name in computed
        if not is_own or new_names.get(tensor.name) != item.name:
            try:
                tensor = self.emitter.copy(tensor)
            except NotSupportedError as error:
                self.empty_outputs[item.name] = str(error)
                return None
            if item.name not in output_names and item.name not in self.emitter.names:
                new_names[tensor.name] = unique_name(item.name, self.emitter.names)
        assert isinstance(tensor, Value)
        return tensor

    def _import_or_refuse(self, node: Message, opset: int) -> None:
        first = next(iter(node.output), "")
        if node.output and first in self.values.fused_outputs:
            return  # fused into an earlier node
        span = Span(self.model.file, 0, self.index, first)
        try:
            results = self._import_node(node, opset, span)
        except NotSupportedError as error:
            results = None
            if first not in self.unneeded:
                title = self.model.titles.get(first, node.op_type)
                self._refuse(title, f"{span}{quoted_name(node)}", str(error))
        if results is None:
            self.values.tensors.update(dict.fromkeys(node.output))
            return
        for name, tensor in zip(node.output, results, strict=False):
            if name:
                self.values.define(name, tensor)

    def _import_node(
        self, node: Message, opset: int, span: Span
    ) -> Sequence[QdqValue] | None:
        inputs = self.values.operands(node)
        pairs = zip(node.input, inputs, strict=True)
        blocked = any(name and x is None for name, x in pairs)
        importer = self._find_importer(node)
        constants = None if blocked else self.folder.fold(node, opset, inputs)
        if constants is not None:
            return constants
        if importer is None:
            local = self.model.functions
            if not function_inlining.has_function_definition(node, opset, local):
                raise NotSupportedError(unsupported_reason(node.op_type))
        if blocked:
            return None
        self.emitter.span = span
        self.emitter.stem = next(iter(node.output), "") or node.op_type
        if importer is None:
            return self._inline_definition(node, opset, inputs)
        attrs = {item.name: attribute_value(item) for item in node.attribute}
        body = self._import_subgraph
        context = NodeContext(node, attrs, (), opset, self.emitter, body)
        run = partial(self._import_with, importer)
        if any(data_lengths.length_of(self.emitter, item) for item in inputs):
            operands = tuple(self.values.materialize_all(inputs))
            return data_lengths.import_counted(replace(context, inputs=operands), run)
        fused = self._fuse_integer_operator(context, importer, inputs)
        if fused is not None:
            return fused
        results = import_numbers(self.values, context, inputs, run)
        return results or self._inline_definition(node, opset, inputs)

    @staticmethod
    def _import_with(importer: Importer, c: NodeContext) -> Results | OnnxValue:
        """Return the results of an importer, which may rely on ONNX's shape rules.

        Raise NotSupportedError if it cannot compute them because the node breaks one.
        """
        try:
            return importer(c)
        except (
            ArithmeticError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            broken_rule = find_shape_error(c.node, c.opset, c.inputs)
            if not broken_rule:
                raise
            raise NotSupportedError(
                f"inputs or attributes that ONNX does not define: {broken_rule}"
            ) from error

    def _find_importer(self, node: Message) -> Importer | None:
        domain = own_domain(node)
        key = f"{domain}:{node.op_type}" if domain else node.op_type
        importer = onnx_importers().get(key)
        if importer is None and self.is_claimed(domain, node.op_type):
            return self._emit_custom
        return importer

    def _emit_custom(self, c: NodeContext) -> Results:
        """Emit a call of `custom`; a type rule or the file gives its result types."""
        value_infos = {item.name: item for item in self.model.values}
        declared: list[TensorType] = []
        for name in c.outputs:
            info = value_infos.get(name)
            kind = None if info is None else info.declared_type
            if kind is not None:
                declared.append(kind)
        data = json.dumps(c.attrs, sort_keys=True, default=str).encode().hex()
        domain = own_domain(c.node)
        attrs = CustomAttrs(domain=domain, name=c.node.op_type, data=data)
        results = self.emitter.multi_call(
            "custom", *c.inputs, declared=tuple(declared), attrs=attrs
        )
        if len(results) != len(c.outputs):
            raise NotSupportedError(
                "neither the file nor a type rule determines its result types"
            )
        return results

    def _fuse_integer_operator(
        self, c: NodeContext, importer: Importer, inputs: QdqOperands
    ) -> Sequence[QdqValue] | None:
        """Return integer results, [] if defined already, or None to use floats."""
        op = c.node.op_type
        if op == "DequantizeLinear":
            return keep_integers(c, inputs)
        if op == "QuantizeLinear":
            return quantize_once(c, inputs, self.values.materialize)
        if op in QLINEAR_OPERATORS:
            return fuse_qlinear(c, inputs, keep_integers)
        if not any(isinstance(item, DequantizedValue) for item in inputs):
            return None
        if op == "Gemm":
            check_gemm_bias(c, inputs)
        if op in DATA_MOVEMENT_OPERATORS:
            moved = fuse_data_movement(importer, c, inputs)
            if moved is not None or op not in qdq_fusion.FUSION_RULES:
                return moved
        values = self.values
        chain = qdq.following_quantize(c.node, values.only_reader, values.tensors)
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
        result = QuantizedValue(self.emitter.value(fused), target.is_unsigned)
        values.define(names[-1], result)
        values.fused_outputs.update(names)
        return []

    def _inline_definition(
        self, node: Message, opset: int, inputs: QdqOperands
    ) -> Results | None:
        operands = declared_operands(self.values, inputs)
        local = self.model.functions
        definition = function_inlining.function_definition(node, opset, operands, local)
        version, body = function_inlining.inline_function(node, definition, opset)
        before = len(self.items)
        with self.inlining.level(len(body)):
            for inner in body:
                self._import_or_refuse(inner, version)
                if len(self.items) > before:
                    raise NotSupportedError(self.items.pop().why)
        return []  # importing the inner nodes has defined the outputs

    def _import_subgraph(
        self, graph: Message, bound: Mapping[str, OnnxValue]
    ) -> list[OnnxValue]:
        values = self.values
        outer = values.tensors, values.readers, values.fused_outputs, values.outputs
        constants: dict[str, OnnxValue] = {}
        for item in graph.initializer:
            constants[item.name] = ConstantValue(tensor_array(item), item.name)
        values.tensors = {**values.tensors, **bound, **constants}
        values.enter(graph.node, graph.output)
        try:
            with self.inlining.level(len(graph.node)):
                for node in graph.node:
                    self._import_or_refuse(node, self.model.opset)
            results = [values.tensors.get(item.name) for item in graph.output]
        finally:
            values.tensors, values.readers, values.fused_outputs, values.outputs = outer
        if any(result is None for result in results):
            raise NotSupportedError("its body is not supported")
        found = [values.materialize(item) for item in results if item is not None]
        if any(data_lengths.length_of(self.emitter, item) for item in found):
            raise NotSupportedError("a body whose results' length depends on the data")
        return found
