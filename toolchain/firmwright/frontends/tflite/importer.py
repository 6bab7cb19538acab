"""Conversion of a `RawModel` into an `IRModule`.

The modules of `operators/` import single nodes. Calls with constant operands are
folded, and variables become state. All unsupported items are reported at once.
"""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from firmwright.base.dtypes import Array, find_dtype
from firmwright.base.errors import NotSupportedError, UnsupportedError, UsageError
from firmwright.base.resource_limits import TENSOR_BYTES_MAX
from firmwright.frontends.tflite import decompress_constants
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.fold_list_updates import merge_list_updates
from firmwright.frontends.tflite.import_context import ImportSession, dtype_advice
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
)
from firmwright.frontends.tflite.operators.registry import imported_operators
from firmwright.frontends.tflite.result_shapes import result_shape
from firmwright.frontends.tflite.rewrites import function_rewrites
from firmwright.frontends.tflite.signed_tensors import make_signed
from firmwright.frontends.tflite.variables import (
    Variable,
    VariableTable,
    shared_variable_key,
)
from firmwright.frontends.tflite.widen_constants import widen_constants
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import OpAttrs, check_attrs
from firmwright.ir.graph.attributes.control import IfAttrs, WhileAttrs
from firmwright.ir.graph.evaluate import evaluate_graph, next_state
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value, unique_name
from firmwright.ir.graph.op_call import CustomOpPredicate, OpCall, accept_no_custom_op
from firmwright.ir.module import IRModule
from firmwright.ir.settings import ModelOrigin
from firmwright.ops.opdef import OpTable

_FOLDED_BYTES = 1 << 10
"""Maximum size of a folded constant that is larger than its inputs."""
_KNOWN_BYTES = 1 << 16
"""Maximum size of a computed result that is larger than its inputs."""


def import_model(
    raw: RawModel,
    name: str,
    data: bytes,
    ops: OpTable,
    signature: str = "",
    is_claimed: CustomOpPredicate = accept_no_custom_op,
) -> IRModule:
    """Return the module of `raw`'s first subgraph, or of the subgraph of `signature`.

    `is_claimed` selects operators imported as `custom`, `data` is the file. Raises
    UnsupportedError with every unsupported item, UsageError for an unknown signature.
    """
    graphs = (
        merge_list_updates(make_signed(widen_constants(g))) for g in raw.subgraphs
    )
    raw = replace(raw, subgraphs=tuple(graphs))
    session = ImportSession(raw, ops, is_claimed)
    first = _entry(raw, signature)
    function = _SubgraphImporter(session, first).run("main")
    for rewrite in function_rewrites():
        function = rewrite(function, session)
    session.check(raw, chosen=bool(signature))
    if session.items:
        raise UnsupportedError(session.ordered_items(), where=raw.file)
    origin = ModelOrigin(hashlib.sha256(data).hexdigest(), first)
    functions = {"main": function, **session.functions}
    return IRModule(
        name, functions, session.constants, entry_name="main", origin=origin
    )


def _entry(raw: RawModel, signature: str) -> int:
    if not signature:
        return 0
    signatures = {item.key: item.subgraph for item in raw.signatures}
    if signature not in signatures:
        hint = (
            f"one of {', '.join(signatures)}."
            if signatures
            else "the file's name alone."
        )
        raise UsageError(
            f"the model has no signature {signature!r}.", where=raw.file, hint=hint
        )
    return signatures[signature]


@dataclass
class _SubgraphImporter:
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
        """Return inputs and outputs of nodes; a variable among them is an ordinary
        tensor.
        """
        results = (index for node in self.graph.nodes for index in node.outputs)
        return frozenset((*self.graph.inputs, *results))

    def run(self, name: str) -> Function:
        function = self.import_stateless(name)
        results = self._separate_results(function)
        function = replace(function, body=tuple(self.calls), results=results)
        return replace(function, state=self.variables.state(self.session.constant))

    def import_stateless(self, name: str) -> Function:
        self.session.reached.add(self.index)
        bad = self._unusable_tensors()
        for node in self.graph.nodes:
            self._import_node(node, bad)
        params = tuple(
            self._value(index) for index in self.graph.inputs if index not in bad
        )
        values = [
            self._value(index) for index in self.graph.outputs if index not in bad
        ]
        results = tuple(map(self.variables.result, values))
        return Function(name, params, tuple(self.calls), results)

    def _separate_results(self, function: Function) -> tuple[Value, ...]:
        """Copy results that are inputs, constants or earlier results to values of their
        own.
        """
        taken = {value.name for value in function.params}
        results = []
        for value in function.results:
            if value.constant is not None or value.name in taken:
                copy = Value(unique_name(f"{value.name}/copy", self.names), value.type)
                self.calls.append(Call("reshape", (value,), (copy,)))
                value = copy
            taken.add(value.name)
            results.append(value)
        return tuple(results)

    def _unusable_tensors(self) -> set[int]:
        """Return the tensors without a fixed shape or known type; refuse unsupported
        tensors.
        """
        unusable = set()
        for tensor in self.graph.tensors:
            location = f"tensor {tensor.index} ({tensor.name})"
            if tensor.is_sparse:
                self.session.refuse("SPARSE", location, "sparse tensors")
            elif outside := tensor.zero_points_out_of_range:
                why = (
                    f"the zero point {outside[0]}, outside of the range of "
                    f"{tensor.dtype}"
                )
                self.session.refuse("QUANTIZATION", location, why)
            if find_dtype(tensor.dtype) is None:
                unusable.add(tensor.index)
        return unusable

    def _type(self, tensor: RawTensor) -> TensorType:
        dtype = find_dtype(tensor.dtype)
        if dtype is None:
            raise NotSupportedError(
                f"element type {tensor.dtype} of tensor {tensor.name}"
            )
        return TensorType(
            self.shapes.get(tensor.index, tensor.shape), dtype, tensor.quantization
        )

    def _value(self, index: int) -> Value:
        tensor = self.graph.tensors[index]
        if tensor.is_variable and index not in self.written:
            name = tensor.name or f"tensor_{index}"
            return self.variables.read(index, name, self._type(tensor))
        if index not in self.values:
            name, kind = tensor.name or f"tensor_{index}", self._type(tensor)
            name, constant = unique_name(name, self.names), None
            if tensor.buffer is not None:
                data = Constant(name, kind.dtype, kind.shape, tensor.buffer)
                constant = self.session.constant(data)
            self.values[index] = Value(name, kind, constant)
        return self.values[index]

    def _array(self, index: int) -> Array | None:
        tensor = self.graph.tensors[index]
        dtype = find_dtype(tensor.dtype)
        if index in self.known_arrays or tensor.buffer is None or dtype is None:
            return self.known_arrays.get(index)
        return np.frombuffer(tensor.buffer, dtype.np).reshape(tensor.shape)

    def _import_node(self, node: RawNode, bad: set[int]) -> None:
        try:
            match node.op:
                case "VAR_HANDLE":
                    names = (
                        node.options.get(key, "")
                        for key in ("container", "shared_name")
                    )
                    container, shared_name = map(str, names)
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
                    self._import_operator(node, bad)
        except NotSupportedError as error:
            why = "; ".join(filter(None, (str(error), self._advice(node))))
            self.session.refuse(node.op, str(node.span), why)

    def _advice(self, node: RawNode) -> str:
        if node.op not in imported_operators():
            return ""
        return dtype_advice(
            self._tensors_at(node.inputs), self._tensors_at(node.outputs)
        )

    def _tensors_at(self, places: Sequence[int]) -> list[RawTensor]:
        return [self.graph.tensors[index] for index in places if index != NO_TENSOR]

    def _import_operator(self, node: RawNode, bad: set[int]) -> None:
        operands = [
            index for index in (*node.inputs, *node.outputs) if index != NO_TENSOR
        ]
        importer = self.session.importer(node.op)
        if bad.intersection(operands):
            dtypes = {self.graph.tensors[i].dtype for i in operands}
            unknown = sorted(name for name in dtypes if find_dtype(name) is None)
            if unknown:
                raise NotSupportedError(f"element type {', '.join(unknown)}")
            return
        call = self._import_call(importer, node)
        if not self._fold_call(call, node.outputs):
            self.calls.append(call)

    def _import_call(self, importer: Importer, node: RawNode) -> Call:
        tensors = self.graph.tensors
        kinds = tuple(
            None if i == NO_TENSOR else self._type(tensors[i]) for i in node.inputs
        )
        arrays = tuple(None if i == NO_TENSOR else self._array(i) for i in node.inputs)
        shape = result_shape(node, kinds[0].shape if kinds and kinds[0] else (), arrays)
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
        outputs = tuple(self._value(i) for i in node.outputs)
        updated = [
            tensors[node.inputs[position]] for position in imported.updated_inputs
        ]
        place = self._value(node.outputs[0]).name if node.outputs else node.op
        memory = [(f"{place}/{item.name}", item) for item in imported.implicit_state]
        inputs += tuple(
            self.variables.read(n, n, item.type, item.fill) for n, item in memory
        )
        becoming: list[tuple[int | str, str, TensorType]]
        becoming = [(t.index, t.name, self._type(t)) for t in updated]
        becoming += [
            (name, name, item.type) for name, item in memory if item.next_output is None
        ]
        nexts = [
            Value(unique_name(f"{name}/next", self.names), kind)
            for _, name, kind in becoming
        ]
        call = Call(imported.op, inputs, (*outputs, *nexts), imported.attrs, node.span)
        self._check_result_types(call)
        for (key, name, _), value in zip(becoming, nexts, strict=True):
            self.variables.assign(key, name, value)
        for name, item in memory:
            if item.next_output is not None:
                self.variables.assign(name, name, outputs[item.next_output])
        return call

    def _infer_shapes(
        self, node: RawNode, imported: ImportedCall, inputs: tuple[Value | None, ...]
    ) -> None:
        """Replace the file's shapes of the node's outputs by those that the operator
        computes.
        """
        outputs = tuple(
            Value("", self._type(self.graph.tensors[index])) for index in node.outputs
        )
        call = Call(imported.op, inputs, outputs, imported.attrs, node.span)
        inferred = self.session.ops[call.op].infer(self._describe(call))
        for index, kind in zip(node.outputs, inferred, strict=False):
            if kind.size_bytes > TENSOR_BYTES_MAX:
                raise NotSupportedError(f"a result of {kind.size_bytes} bytes")
            self.shapes[index] = kind.shape

    def _describe(self, call: Call) -> OpCall:
        constants = tuple(
            self.session.constants[v.constant] if v is not None and v.constant else None
            for v in call.inputs
        )
        types = tuple(None if v is None else v.type for v in call.inputs)
        return OpCall(
            call.op, types, tuple(v.type for v in call.outputs), call.attrs, constants
        )

    def _fold_call(self, call: Call, places: Sequence[int]) -> bool:
        """Fold a call with constant operands; return whether its outputs are constants
        now.

        Outputs of the model and huge results stay calls, but later operators use their
        values.
        """
        opdef = self.session.ops[call.op]
        if (
            call.variables
            or opdef.numerics == "each"
            or len(call.outputs) != len(places)
        ):
            return False
        described = self._describe(call)
        input_bytes = sum(c.size_bytes for c in described.constants if c is not None)
        output_bytes = sum(kind.size_bytes for kind in described.outputs)
        if output_bytes > max(_KNOWN_BYTES, input_bytes):
            return False
        self.session.computed.spend(output_bytes)
        with np.errstate(all="ignore"):  # infinity and NaN are valid results
            results = opdef.reference(
                described, [c.array() for c in described.constants if c]
            )
        self.known_arrays.update(zip(places, results, strict=True))
        if output_bytes > max(_FOLDED_BYTES, input_bytes) or set(places) & set(
            self.graph.outputs
        ):
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
            array = decompress_constants.decompress_constant(
                parts[0], parts[1], value.type
            )
            self.known_arrays[index] = array
            self._bind_constant(index, value, array)

    def _bind_constant(self, index: int, value: Value, array: Array) -> None:
        constant = Constant.from_array(value.name, array, value.type.dtype)
        self.values[index] = replace(value, constant=self.session.constant(constant))

    def _check_result_types(self, call: Call) -> None:
        described = self._describe(call)
        kinds = (*described.inputs, *described.outputs)
        if any(kind is not None and kind.elements == 0 for kind in kinds):
            raise NotSupportedError("a tensor without elements")
        inferred = self.session.ops[call.op].infer(described)
        for value, kind in zip(call.outputs, inferred, strict=True):
            if (value.type.shape, value.type.dtype) != (kind.shape, kind.dtype):
                raise NotSupportedError(
                    f"its output {value.name} is declared {value.type.dtype.name} "
                    f"{list(value.type.shape)} but is {kind.dtype.name} "
                    f"{list(kind.shape)}"
                )

    def _import_control_flow(
        self, op: str, node: RawNode, parts: Sequence[str]
    ) -> None:
        """Append a call that runs other subgraphs; their variables become operands and
        results.
        """
        indices = {
            attr: int(str(node.options[f"{attr}_subgraph_index"])) for attr in parts
        }
        operands = node.inputs[1:] if op == "if" else node.inputs
        shapes = [self._type(self.graph.tensors[index]).shape for index in operands]
        variables, changed = self._shared_variables(indices, shapes)
        _, branch = self.session.branches[indices[parts[-1]]]
        self.shapes.update(
            (index, value.shape)
            for index, value in zip(node.outputs, branch.results, strict=False)
        )
        if op == "while":  # a loop passes its operands on to the next iteration
            changed = list(variables)
        runs = {
            attr: self._branch_function(
                attr, index, variables, [] if attr == "cond" else changed
            )
            for attr, index in indices.items()
        }
        before = [
            self.variables.read(key, v.value.name, v.value.type, v.initial.flat[0])
            for key, v in variables.items()
        ]
        inputs = (*(self._value(i) for i in node.inputs), *before)
        names = {key: variables[key].value.name for key in changed}
        after = {
            key: Value(
                unique_name(f"{name}/next", self.names), variables[key].value.type
            )
            for key, name in names.items()
        }
        outputs = (*(self._value(i) for i in node.outputs), *after.values())
        attrs: OpAttrs
        if op == "if":
            attrs = IfAttrs(then=runs["then"], else_=runs["else"])
        else:
            attrs = WhileAttrs(cond=runs["cond"], body=runs["body"])
        self.calls.append(Call(op, inputs, outputs, attrs, node.span))
        for key, value in after.items():
            self.variables.assign(key, names[key], value)

    def _shared_variables(
        self, indices: Mapping[str, int], shapes: Sequence[tuple[int, ...]]
    ) -> tuple[dict[Hashable, Variable], list[Hashable]]:
        """Return the subgraphs' variables by their key in this graph, and the assigned
        keys.
        """
        shared: dict[Hashable, Variable] = {}
        changed: dict[Hashable, None] = {}
        for attr, index in indices.items():
            if index not in self.session.branches:
                params = self.session.raw.subgraphs[index].inputs
                known = dict(zip(params, shapes, strict=False))
                graph = _SubgraphImporter(self.session, index, shapes=known)
                function = graph.import_stateless(f"{attr}_{index}")
                self.session.branches[index] = graph.variables, function
            variables, _ = self.session.branches[index]
            if variables.initial_values:
                raise NotSupportedError(
                    "variables that are initialized inside a branch or loop"
                )
            for own, variable in variables.known.items():
                key = shared_variable_key(index, own)
                shared.setdefault(key, variable)
                if variable.current != variable.value:
                    changed[key] = None
            if attr == "cond" and changed:
                raise NotSupportedError("a variable that a loop's condition assigns")
        return shared, list(changed)

    def _branch_function(
        self,
        attr: str,
        index: int,
        variables: Mapping[Hashable, Variable],
        assigned: Sequence[Hashable],
    ) -> str:
        table, function = self.session.branches[index]
        name = f"{attr}_{index}" + (
            f"_{len(self.session.functions)}" if variables else ""
        )
        if name not in self.session.functions:
            function = table.with_operands(function, index, variables, assigned)
            self.session.functions[name] = replace(function, name=name)
        return name

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
        once = _SubgraphImporter(scratch, int(str(node.options["init_subgraph_index"])))
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
