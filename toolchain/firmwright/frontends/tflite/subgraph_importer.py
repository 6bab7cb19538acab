"""Import of one subgraph of a `RawModel` as a function.

Calls with constant operands are folded, and variables become state.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.resource_limits import TENSOR_BYTES_MAX
from firmwright.frontends.tflite import decompress_constants
from firmwright.frontends.tflite.branches import branch_function, shared_variables
from firmwright.frontends.tflite.call_types import (
    check_has_elements,
    check_result_types,
    describe_call,
)
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.element_types import (
    find_operand_dtype,
    find_tensor_dtype,
)
from firmwright.frontends.tflite.import_context import ImportSession, dtype_advice
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
)
from firmwright.frontends.tflite.operators.registry import imported_operators
from firmwright.frontends.tflite.result_shapes import result_shape
from firmwright.frontends.tflite.variables import VariableTable
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import OpAttrs, check_attrs
from firmwright.ir.graph.attributes.control import IfAttrs, WhileAttrs
from firmwright.ir.graph.evaluate import evaluate_graph, next_state
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value, unique_name
from firmwright.ir.graph.separate_results import separate_results
from firmwright.ir.module import IRModule

_FOLDED_BYTES = 1 << 10
"""Maximum size of a folded constant that is larger than its inputs."""
_KNOWN_BYTES = 1 << 16
"""Maximum size of a computed result that is larger than its inputs."""


@dataclass
class SubgraphImporter:
    """Imports subgraph `index`; `shapes` has those that differ from the file's.

    `known_arrays` are results computed at compile time, `handles` the (container, name)
    of variables by the tensors that hold their handles.
    """

    session: ImportSession
    index: int
    values: dict[int, Value] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    known_arrays: dict[int, Array] = field(default_factory=dict)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    handles: dict[int, tuple[str, str]] = field(default_factory=dict)
    variables: VariableTable = field(init=False)

    def __post_init__(self) -> None:
        self.variables = VariableTable(
            partial(unique_name, taken=self.names), self.calls.append
        )

    @property
    def graph(self) -> RawSubgraph:
        return self.session.raw.subgraphs[self.index]

    @cached_property
    def written(self) -> frozenset[int]:
        """Return inputs and results; a variable among them is an ordinary tensor."""
        written = set(self.graph.inputs)
        for node in self.graph.nodes:
            written.update(node.outputs)
        return frozenset(written)

    def run(self, name: str) -> Function:
        function = separate_results(self.import_stateless(name))
        return replace(function, state=self.variables.state(self.session.constant))

    def import_stateless(self, name: str) -> Function:
        self.session.reached.add(self.index)
        bad = self._unusable_tensors()
        for node in self.graph.nodes:
            self._import_node(node)
        inputs = [index for index in self.graph.inputs if index not in bad]
        params = tuple(map(self._value, inputs))
        outputs = [index for index in self.graph.outputs if index not in bad]
        values = list(map(self._value, outputs))
        results = tuple(map(self.variables.result, values))
        return Function(name, params, tuple(self.calls), results)

    def _unusable_tensors(self) -> set[int]:
        """Return the tensors of unknown types; refuse tensors of unsupported kinds."""
        unusable = set()
        for tensor in self.graph.tensors:
            location = f"tensor {tensor.index} ({tensor.name})"
            outside = tensor.zero_points_out_of_range
            if tensor.is_sparse:
                self.session.refuse("SPARSE", location, "sparse tensors")
            elif outside:
                why = (
                    f"the zero point {outside[0]}, outside of the range of "
                    f"{tensor.dtype}"
                )
                self.session.refuse("QUANTIZATION", location, why)
            if find_tensor_dtype(tensor.dtype) is None:
                unusable.add(tensor.index)
        return unusable

    def _type(self, tensor: RawTensor) -> TensorType:
        dtype = find_tensor_dtype(tensor.dtype)
        if dtype is None:
            what = f"element type {tensor.dtype} of tensor {tensor.name}"
            raise NotSupportedError(what)
        shape = self.shapes.get(tensor.index, tensor.shape)
        return TensorType(shape, dtype, tensor.quantization)

    def _value(self, index: int) -> Value:
        tensor = self.graph.tensors[index]
        if tensor.is_variable and index not in self.written:
            name = tensor.name or f"tensor_{index}"
            return self.variables.read(index, name, self._type(tensor))
        if index not in self.values:
            name = tensor.name or f"tensor_{index}"
            kind = self._type(tensor)
            name = unique_name(name, self.names)
            constant = None
            if tensor.buffer is not None:
                data = Constant(name, kind.dtype, kind.shape, tensor.buffer)
                constant = self.session.constant(data)
            self.values[index] = Value(name, kind, constant)
        return self.values[index]

    def _array(self, index: int) -> Array | None:
        tensor = self.graph.tensors[index]
        dtype = find_tensor_dtype(tensor.dtype)
        if index in self.known_arrays or tensor.buffer is None or dtype is None:
            return self.known_arrays.get(index)
        return np.frombuffer(tensor.buffer, dtype.np).reshape(tensor.shape)

    def _import_node(self, node: RawNode) -> None:
        try:
            match node.op:
                case "VAR_HANDLE":
                    container = str(node.options.get("container", ""))
                    shared_name = str(node.options.get("shared_name", ""))
                    self.handles[node.outputs[0]] = (container, shared_name)
                case "READ_VARIABLE":
                    self._read_variable(node)
                case "ASSIGN_VARIABLE":
                    key = self._handle(node)
                    self.variables.assign(key, key[1], self._value(node.inputs[1]))
                case "CALL_ONCE":
                    self._run_initialization(node)
                case "IF":
                    self._import_control_flow("if", node, ("then", "else"))
                case "WHILE":
                    self._import_control_flow("while", node, ("cond", "body"))
                case decompress_constants.DECODE_OPERATOR:
                    self._import_decode(node)
                case _:
                    self._import_operator(node)
        except NotSupportedError as error:
            why = "; ".join(filter(None, (str(error), self._advice(node))))
            self.session.refuse(node.op, str(node.span), why)

    def _advice(self, node: RawNode) -> str:
        if node.op not in imported_operators():
            return ""
        inputs = self._tensors_at(node.inputs)
        outputs = self._tensors_at(node.outputs)
        return dtype_advice(inputs, outputs)

    def _tensors_at(self, places: Sequence[int]) -> list[RawTensor]:
        return [self.graph.tensors[index] for index in places if index != NO_TENSOR]

    def _import_operator(self, node: RawNode) -> None:
        places = (*node.inputs, *node.outputs)
        operands = [index for index in places if index != NO_TENSOR]
        importer = self.session.importer(node.op)
        dtypes = {self.graph.tensors[i].dtype for i in operands}
        unknown = sorted(
            name for name in dtypes if find_operand_dtype(name, node.op) is None
        )
        if unknown:
            raise NotSupportedError(f"element type {', '.join(unknown)}")
        call = self._import_call(importer, node)
        if not self._fold_call(call, node.outputs):
            check_has_elements(self.session, call)
            self.calls.append(call)

    def _import_call(self, importer: Importer, node: RawNode) -> Call:
        tensors = self.graph.tensors
        kinds = tuple(map(self._input_type, node.inputs))
        arrays = tuple(None if i == NO_TENSOR else self._array(i) for i in node.inputs)
        first = kinds[0] if kinds else None
        shape = result_shape(node, () if first is None else first.shape, arrays)
        if shape is not None and node.outputs:
            self.shapes[node.outputs[0]] = shape
        elif node.op == "RESHAPE" and tensors[node.outputs[0]].dynamic_axes:
            raise NotSupportedError(
                "a shape that is computed at run time; convert the model with static "
                "shapes"
            )
        results = tuple(self._type(tensors[i]) for i in node.outputs)
        imported = importer.run(ImportContext(node, kinds, results, arrays))
        check_attrs(imported.op, imported.attrs)
        indices = [node.inputs[position] for position in imported.inputs]
        inputs = tuple(None if i == NO_TENSOR else self._value(i) for i in indices)
        if not imported.updated_inputs and not imported.implicit_state:
            self._infer_shapes(node, imported, inputs)
        return self._call_with_state(node, imported, inputs)

    def _input_type(self, index: int) -> TensorType | None:
        if index == NO_TENSOR:
            return None
        return self._type(self.graph.tensors[index])

    def _call_with_state(
        self, node: RawNode, imported: ImportedCall, inputs: tuple[Value | None, ...]
    ) -> Call:
        """Return the call with the state that it reads; its results become the state.

        First come the variables that it updates, then the state of the operator itself.
        """
        outputs = tuple(map(self._value, node.outputs))
        place = outputs[0].name if outputs else node.op
        memory = [(f"{place}/{item.name}", item) for item in imported.implicit_state]
        state = [self.variables.read(n, n, item.type, item.fill) for n, item in memory]
        becoming: list[tuple[int | str, str, TensorType]] = []
        for position in imported.updated_inputs:
            tensor = self.graph.tensors[node.inputs[position]]
            becoming.append((tensor.index, tensor.name, self._type(tensor)))
        for name, item in memory:
            if item.next_output is None:
                becoming.append((name, name, item.type))
        nexts: list[Value] = []
        for _, name, kind in becoming:
            nexts.append(Value(unique_name(f"{name}/next", self.names), kind))
        operands = (*inputs, *state)
        results = (*outputs, *nexts)
        call = Call(imported.op, operands, results, imported.attrs, node.span)
        check_result_types(self.session, call)
        for (key, name, _), value in zip(becoming, nexts, strict=True):
            self.variables.assign(key, name, value)
        for name, item in memory:
            if item.next_output is not None:
                self.variables.assign(name, name, outputs[item.next_output])
        return call

    def _infer_shapes(
        self, node: RawNode, imported: ImportedCall, inputs: tuple[Value | None, ...]
    ) -> None:
        """Replace the file's shapes of results by those that the operator computes."""
        outputs: list[Value] = []
        for index in node.outputs:
            outputs.append(Value("", self._type(self.graph.tensors[index])))
        call = Call(imported.op, inputs, tuple(outputs), imported.attrs, node.span)
        described = describe_call(self.session, call)
        inferred = self.session.ops[call.op].infer(described)
        for index, kind in zip(node.outputs, inferred, strict=False):
            if kind.size_bytes > TENSOR_BYTES_MAX:
                raise NotSupportedError(f"a result of {kind.size_bytes} bytes")
            self.shapes[index] = kind.shape

    def _fold_call(self, call: Call, places: Sequence[int]) -> bool:
        """Fold a call with constant operands; return whether its results are constant.

        Outputs of the model and huge results stay calls, but later operators use their
        values.
        """
        opdef = self.session.ops[call.op]
        if call.variables or opdef.numerics == "each":
            return False
        if len(call.outputs) != len(places):
            return False
        described = describe_call(self.session, call)
        constants = [item for item in described.constants if item is not None]
        input_bytes = sum(constant.size_bytes for constant in constants)
        output_bytes = sum(kind.size_bytes for kind in described.outputs)
        if output_bytes > max(_KNOWN_BYTES, input_bytes):
            return False
        self.session.computed.spend(output_bytes)
        with np.errstate(all="ignore"):  # infinity and NaN are valid results
            arrays = [constant.array() for constant in constants]
            results = opdef.reference(described, arrays)
        self.known_arrays.update(zip(places, results, strict=True))
        is_output = not set(places).isdisjoint(self.graph.outputs)
        if is_output or output_bytes > max(_FOLDED_BYTES, input_bytes):
            return False
        for index, value, result in zip(places, call.outputs, results, strict=True):
            self._bind_constant(index, value, result)
        return True

    def _import_decode(self, node: RawNode) -> None:
        tensors = self.graph.tensors
        for place, index in enumerate(node.outputs):
            sources = [tensors[i] for i in node.inputs[2 * place : 2 * place + 2]]
            parts = [tensor.buffer for tensor in sources if tensor.buffer is not None]
            if len(parts) != 2:
                raise NotSupportedError("compressed data that is not constant")
            value = self._value(index)
            self.session.computed.spend(value.type.size_bytes)
            encoded, ancillary = parts
            array = decompress_constants.decompress_constant(
                encoded, ancillary, value.type
            )
            self.known_arrays[index] = array
            self._bind_constant(index, value, array)

    def _bind_constant(self, index: int, value: Value, array: Array) -> None:
        constant = Constant.from_array(value.name, array, value.type.dtype)
        self.values[index] = replace(value, constant=self.session.constant(constant))

    def _import_control_flow(
        self, op: str, node: RawNode, parts: Sequence[str]
    ) -> None:
        """Append a call that runs subgraphs; variables become operands and results."""
        indices: dict[str, int] = {}
        for attr in parts:
            indices[attr] = int(str(node.options[f"{attr}_subgraph_index"]))
        operands = node.inputs[1:] if op == "if" else node.inputs
        shapes = [self._type(self.graph.tensors[index]).shape for index in operands]
        session = self.session
        variables, changed = shared_variables(
            session, indices, shapes, self._import_branch
        )
        _, branch = session.branches[indices[parts[-1]]]
        for index, result in zip(node.outputs, branch.results, strict=False):
            self.shapes[index] = result.shape
        if op == "while":  # a loop passes its operands on to the next iteration
            changed = list(variables)
        runs: dict[str, str] = {}
        for attr, index in indices.items():
            assigned = [] if attr == "cond" else changed
            runs[attr] = branch_function(session, attr, index, variables, assigned)
        before: list[Value] = []
        for key, variable in variables.items():
            name = variable.value.name
            kind = variable.value.type
            first = variable.initial.flat[0]
            before.append(self.variables.read(key, name, kind, first))
        inputs = (*map(self._value, node.inputs), *before)
        after: dict[Hashable, Value] = {}
        for key in changed:
            old = variables[key].value
            after[key] = Value(unique_name(f"{old.name}/next", self.names), old.type)
        outputs = (*map(self._value, node.outputs), *after.values())
        attrs: OpAttrs
        if op == "if":
            attrs = IfAttrs(then=runs["then"], else_=runs["else"])
        else:
            attrs = WhileAttrs(cond=runs["cond"], body=runs["body"])
        self.calls.append(Call(op, inputs, outputs, attrs, node.span))
        for key, value in after.items():
            self.variables.assign(key, variables[key].value.name, value)

    def _import_branch(
        self, name: str, index: int, shapes: Mapping[int, tuple[int, ...]]
    ) -> tuple[VariableTable, Function]:
        graph = SubgraphImporter(self.session, index, shapes=dict(shapes))
        function = graph.import_stateless(name)
        return graph.variables, function

    def _read_variable(self, node: RawNode) -> None:
        key = self._handle(node)
        tensor = self.graph.tensors[node.outputs[0]]
        self.values[tensor.index] = self.variables.read(key, key[1], self._type(tensor))

    def _handle(self, node: RawNode) -> tuple[str, str]:
        if not node.inputs or node.inputs[0] not in self.handles:
            raise NotSupportedError(
                "a variable whose handle comes from another subgraph"
            )
        return self.handles[node.inputs[0]]

    def _run_initialization(self, node: RawNode) -> None:
        scratch = replace(self.session, constants={}, functions={}, branches={})
        index = int(str(node.options["init_subgraph_index"]))
        once = SubgraphImporter(scratch, index)
        function = once.run("once")
        if self.session.items:
            return  # the reason has been reported
        if function.params:
            raise NotSupportedError("an initialization that takes inputs")
        functions = {"once": function} | scratch.functions
        module = IRModule("once", functions, scratch.constants, entry_name="once")
        after = next_state(module, evaluate_graph(module, {}, self.session.ops, {}))
        for key, variable in once.variables.known.items():
            self.variables.set_initial(key, after[variable.value.name])
