"""Conversion of a `RawModel` into an `IRModule`.

The operator files under `ops/` define the meaning of operators; this module finds the importer,
passes it the raw node, and collects unsupported items, so that all are reported at once. Calls of
constants are folded. Variables become state: reads and assignments become plain dataflow, and an
initialization subgraph is evaluated at import time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from firmwright.base.dtypes import Array, find_dtype
from firmwright.base.errors import NotSupportedError, UnsupportedError, UsageError
from firmwright.frontends.tflite import decompress_constants
from firmwright.frontends.tflite.diagnostics import dtype_advice
from firmwright.frontends.tflite.early_exit_buffers import convert_early_exits
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.frontends.tflite.variables import Variable, VariableTable, shared_variable_key
from firmwright.frontends.tflite.widen_constants import widen
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.evaluate import evaluate_graph, next_state
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.op_import import (
    CustomOpPredicate,
    ImportContext,
    ImportedCall,
    accept_no_custom_op,
)
from firmwright.ir.graph.opdef import OpCall, OpDef, OpTable
from firmwright.ir.module import IRModule
from firmwright.ir.raw_model import NO_TENSOR, RawModel, RawNode, RawSubgraph, RawTensor

_FOLDED_BYTES = 1 << 10
"""Largest folded constant, however small its inputs are."""
_KNOWN_BYTES = 1 << 16
"""Largest result that is computed at all."""


def import_model(
    raw: RawModel,
    name: str,
    imports: Mapping[str, OpDef],
    data: bytes,
    ops: OpTable,
    signature: str = "",
    is_claimed: CustomOpPredicate = accept_no_custom_op,
) -> IRModule:
    """Return the module of `raw`'s first subgraph, or of the subgraph of `signature`.

    `imports` maps `tflite:NAME` to the operator that imports it, `is_claimed` selects operators
    that are imported as `custom`, and `data` is the file (for its hash). Raises UnsupportedError
    with every unsupported item, UsageError for an unknown signature.
    """
    raw = replace(raw, subgraphs=tuple(map(widen, raw.subgraphs)))
    work = ImportSession(raw, imports, ops, is_claimed)
    first = _entry(raw, signature)
    function = convert_early_exits(_SubgraphImporter(work, first).run("main"), work)
    work.check(raw, chosen=bool(signature))
    if work.items:
        raise UnsupportedError(
            work.items,
            where=raw.file,
            hint="`firmwright ops` lists supported operators; or convert the model with static "
            "shapes and full integer quantization, or without quantization.",
        )
    return IRModule(
        name=name,
        functions={"main": function, **work.functions},
        constants=work.constants,
        attrs={
            "entry": "main",
            "source_sha256": hashlib.sha256(data).hexdigest(),
            **({"subgraph": first} if first else {}),
        },
    )


def _entry(raw: RawModel, signature: str) -> int:
    """Return the subgraph of the signature; the first one without a signature."""
    if not signature:
        return 0
    signatures = {item.key: item.subgraph for item in raw.signatures}
    if signature not in signatures:
        raise UsageError(
            f"the model has no signature {signature!r}.",
            where=raw.file,
            hint=f"one of {', '.join(signatures)}." if signatures else "the file's name alone.",
        )
    return signatures[signature]


@dataclass
class _SubgraphImporter:
    """Import of one subgraph."""

    work: ImportSession
    index: int
    values: dict[int, Value] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    known: dict[int, Array] = field(default_factory=dict)
    handles: dict[int, tuple[str, str]] = field(default_factory=dict)
    variables: VariableTable = field(init=False)

    def __post_init__(self) -> None:
        self.variables = VariableTable(self._unique, self.calls.append)

    @property
    def graph(self) -> RawSubgraph:
        return self.work.raw.subgraphs[self.index]

    @cached_property
    def written(self) -> frozenset[int]:
        """Outputs of nodes. A tensor marked as variable that is an output is an ordinary tensor."""
        return frozenset(index for node in self.graph.nodes for index in node.outputs)

    def run(self, name: str) -> Function:
        function = self.stateless(name)
        return replace(function, state=self.variables.state(self.work.constant))

    def stateless(self, name: str) -> Function:
        """Return the function without its state."""
        self.work.reached.add(self.index)
        self._check_tensors()
        bad = {tensor.index for tensor in self.graph.tensors if not self._is_usable(tensor)}
        for node in self.graph.nodes:
            self._node(node, bad)
        params = tuple(self._value(index) for index in self.graph.inputs if index not in bad)
        results = [self._value(index) for index in self.graph.outputs if index not in bad]
        results = [self.variables.result(value) for value in results]
        return Function(name, params, tuple(self.calls), tuple(results))

    def _check_tensors(self) -> None:
        for tensor in self.graph.tensors:
            place = f"tensor {tensor.index} ({tensor.name})"
            if tensor.dynamic_axes:
                axes = ", ".join(map(str, tensor.dynamic_axes))
                self.work.refuse("DYNAMIC_SHAPE", place, f"the size of axis {axes} is not fixed")
            elif tensor.is_sparse:
                self.work.refuse("SPARSE", place, "sparse tensors")

    def _is_usable(self, tensor: RawTensor) -> bool:
        return not tensor.dynamic_axes and find_dtype(tensor.dtype) is not None

    # ---- values ------------------------------------------------------------------------------

    def _type(self, tensor: RawTensor) -> TensorType:
        dtype = find_dtype(tensor.dtype)
        if dtype is None:
            raise NotSupportedError(f"element type {tensor.dtype} of tensor {tensor.name}")
        return TensorType(tensor.shape, dtype, tensor.quantization)

    def _value(self, index: int) -> Value:
        tensor = self.graph.tensors[index]
        if tensor.is_variable and index not in self.written:
            name = tensor.name or f"tensor_{index}"
            return self.variables.read(index, name, self._type(tensor))
        if index not in self.values:
            name = self._unique(tensor.name or f"tensor_{index}")
            kind = self._type(tensor)
            constant = None
            if tensor.buffer is not None:
                data = Constant(name, kind.dtype, kind.shape, tensor.buffer)
                constant = self.work.constant(data)
            self.values[index] = Value(name, kind, constant)
        return self.values[index]

    def _unique(self, name: str) -> str:
        """Return a unique name: TFLite allows equal tensor names, the IR does not."""
        candidate, count = name, 0
        while candidate in self.names:
            count += 1
            candidate = f"{name}:{count}"
        self.names.add(candidate)
        return candidate

    def _array(self, index: int) -> Array | None:
        if index in self.known:
            return self.known[index]
        tensor = self.graph.tensors[index]
        dtype = find_dtype(tensor.dtype)
        if tensor.buffer is None or dtype is None:
            return None
        return np.frombuffer(tensor.buffer, dtype.np).reshape(tensor.shape)

    # ---- calls -------------------------------------------------------------------------------

    def _node(self, node: RawNode, bad: set[int]) -> None:
        try:
            match node.op:
                case "VAR_HANDLE":
                    self.handles[node.outputs[0]] = _variable_name(node)
                case "READ_VARIABLE":
                    self._read(node)
                case "ASSIGN_VARIABLE":
                    self._assign(node)
                case "CALL_ONCE":
                    self._call_once(node)
                case "IF":
                    parts = {"then": "then_subgraph_index", "else": "else_subgraph_index"}
                    self._control("if", node, parts)
                case "WHILE":
                    parts = {"cond": "cond_subgraph_index", "body": "body_subgraph_index"}
                    self._control("while", node, parts)
                case decompress_constants.DECODE_OPERATOR:
                    self._decode(node)
                case _:
                    self._operator(node, bad)
        except NotSupportedError as error:
            why = "; ".join(filter(None, (str(error), self._advice(node))))
            self.work.refuse(node.op, str(node.span), why)

    def _advice(self, node: RawNode) -> str:
        if f"tflite:{node.op}" not in self.work.imports:
            return ""
        inputs, outputs = (
            [self.graph.tensors[index] for index in places if index != NO_TENSOR]
            for places in (node.inputs, node.outputs)
        )
        return dtype_advice(inputs, outputs)

    def _operator(self, node: RawNode, bad: set[int]) -> None:
        operands = [index for index in (*node.inputs, *node.outputs) if index != NO_TENSOR]
        importer = self.work.importer(node.op)
        if importer is None:
            raise NotSupportedError("this operator is not supported")
        if bad.intersection(operands):
            dtypes = {self.graph.tensors[i].dtype for i in operands}
            unknown = sorted(name for name in dtypes if find_dtype(name) is None)
            if unknown:
                raise NotSupportedError(f"element type {', '.join(unknown)}")
            return
        call = self._checked(importer, node)
        if not self._folded(self.work.ops[call.op], call, node.outputs):
            self.calls.append(call)

    def _checked(self, importer: Callable[[ImportContext], ImportedCall], node: RawNode) -> Call:
        tensors = self.graph.tensors
        context = ImportContext(
            node,
            tuple(None if i == NO_TENSOR else self._type(tensors[i]) for i in node.inputs),
            tuple(self._type(tensors[i]) for i in node.outputs),
            tuple(None if i == NO_TENSOR else self._array(i) for i in node.inputs),
        )
        imported = importer(context)
        indices = [node.inputs[position] for position in imported.inputs]
        inputs = tuple(None if i == NO_TENSOR else self._value(i) for i in indices)
        outputs = tuple(self._value(i) for i in node.outputs)
        updated = [tensors[node.inputs[position]] for position in imported.updated_inputs]
        place = self._value(node.outputs[0]).name if node.outputs else node.op
        memory = [(f"{place}/{item.name}", item) for item in imported.implicit_state]
        inputs += tuple(self.variables.read(n, n, item.type, item.fill) for n, item in memory)
        becoming: list[tuple[int | str, str, TensorType]]
        becoming = [(t.index, t.name, self._type(t)) for t in updated]
        becoming += [(name, name, item.type) for name, item in memory if item.next_output is None]
        nexts = [Value(self._unique(f"{name}/next"), kind) for _, name, kind in becoming]
        call = Call(imported.op, inputs, (*outputs, *nexts), imported.attrs, node.span)
        self._infer(self.work.ops[imported.op], call)
        for (key, name, _), value in zip(becoming, nexts, strict=True):
            self.variables.assign(key, name, value)
        for name, item in memory:
            if item.next_output is not None:
                self.variables.assign(name, name, outputs[item.next_output])
        return call

    def _describe(self, call: Call) -> OpCall:
        constants = tuple(
            self.work.constants[v.constant] if v is not None and v.constant else None
            for v in call.inputs
        )
        types = tuple(None if v is None else v.type for v in call.inputs)
        return OpCall(call.op, types, tuple(v.type for v in call.outputs), call.attrs, constants)

    def _folded(self, opdef: OpDef, call: Call, places: Sequence[int]) -> bool:
        """Fold a call of constants; return whether its outputs are constants now.

        Outputs of the model stay calls, as do calls whose results are far larger than their inputs;
        later operators see the values of these as well.
        """
        if call.variables:
            return False
        if len({*opdef.numerics.values()}) > 1 or len(call.outputs) != len(places):
            return False
        described = self._describe(call)
        input_bytes = sum(c.size_bytes for c in described.constants if c is not None)
        output_bytes = sum(kind.size_bytes for kind in described.outputs)
        if output_bytes > max(_KNOWN_BYTES, input_bytes):
            return False
        with np.errstate(all="ignore"):  # infinity and NaN are values among floats
            results = opdef.reference(described, [c.array() for c in described.constants if c])
        self.known.update(zip(places, results, strict=True))
        if output_bytes > max(_FOLDED_BYTES, input_bytes) or set(places) & set(self.graph.outputs):
            return False
        for index, value, result in zip(places, call.outputs, results, strict=True):
            self._becomes(index, value, result)
        return True

    def _decode(self, node: RawNode) -> None:
        """Replace TFLM_DECODE by decompressed constants."""
        tensors = self.graph.tensors
        for place, index in enumerate(node.outputs):
            sources = [tensors[i] for i in node.inputs[2 * place : 2 * place + 2]]
            parts = [tensor.buffer for tensor in sources if tensor.buffer is not None]
            if len(parts) != 2:
                raise NotSupportedError("compressed data that is not constant")
            value = self._value(index)
            self.known[index] = decompress_constants.decompress(parts[0], parts[1], value.type)
            self._becomes(index, value, self.known[index])

    def _becomes(self, index: int, value: Value, array: Array) -> None:
        constant = Constant.from_array(value.name, array, value.type.dtype)
        self.values[index] = replace(value, constant=self.work.constant(constant))

    def _infer(self, opdef: OpDef, call: Call) -> None:
        described = self._describe(call)
        kinds = (*described.inputs, *described.outputs)
        if any(kind is not None and kind.elements == 0 for kind in kinds):
            raise NotSupportedError("a tensor without elements")
        inferred = opdef.infer(described)
        for value, kind in zip(call.outputs, inferred, strict=True):
            if (value.type.shape, value.type.dtype) != (kind.shape, kind.dtype):
                raise NotSupportedError(
                    f"its output {value.name} is declared {value.type.dtype.name} "
                    f"{list(value.type.shape)} but is {kind.dtype.name} {list(kind.shape)}"
                )

    # ---- control flow --------------------------------------------------------------------------

    def _control(self, op: str, node: RawNode, parts: Mapping[str, str]) -> None:
        """Append a call that runs other subgraphs.

        The variables that these use become further operands and results.
        """
        indices = {attr: int(str(node.options[option])) for attr, option in parts.items()}
        variables, changed = self._kept(indices)
        if op == "while":  # a loop passes its operands on to the next iteration
            changed = list(variables)
        attrs: dict[str, Attr] = {
            attr: self._branch(attr, index, variables, [] if attr == "cond" else changed)
            for attr, index in indices.items()
        }
        before = [
            self.variables.read(key, v.value.name, v.value.type, v.initial.flat[0])
            for key, v in variables.items()
        ]
        inputs = (*(self._value(i) for i in node.inputs), *before)
        after = {
            key: Value(self._unique(f"{variables[key].value.name}/next"), variables[key].value.type)
            for key in changed
        }
        outputs = (*(self._value(i) for i in node.outputs), *after.values())
        self.calls.append(Call(op, inputs, outputs, attrs, node.span))
        for key, value in after.items():
            self.variables.assign(key, variables[key].value.name, value)

    def _kept(self, indices: Mapping[str, int]) -> tuple[dict[Hashable, Variable], list[Hashable]]:
        """Return the variables that the subgraphs use, and the keys of the assigned ones.

        Keys are those of this subgraph. A variable tensor belongs to its subgraph, not to the
        caller.
        """
        shared: dict[Hashable, Variable] = {}
        changed: dict[Hashable, None] = {}
        for attr, index in indices.items():
            if index not in self.work.branches:
                graph = _SubgraphImporter(self.work, index)
                self.work.branches[index] = graph, graph.stateless(f"{attr}_{index}")
            variables = self.work.branches[index][0].variables
            if variables.initial_values:
                raise NotSupportedError("variables that are initialized inside a branch or loop")
            for own, variable in variables.known.items():
                key = shared_variable_key(index, own)
                shared.setdefault(key, variable)
                if variable.current != variable.value:
                    changed[key] = None
            if attr == "cond" and changed:
                raise NotSupportedError("a variable that a loop's condition assigns")
        return shared, list(changed)

    def _branch(
        self,
        attr: str,
        index: int,
        variables: Mapping[Hashable, Variable],
        assigned: Sequence[Hashable],
    ) -> str:
        """Return the name of the function of subgraph `index`, with `variables` as operands.

        The values of `assigned` are further results.
        """
        graph, function = self.work.branches[index]
        name = f"{attr}_{index}" + (f"_{len(self.work.functions)}" if variables else "")
        if name not in self.work.functions:
            self.work.functions[name] = graph.branch(name, function, variables, assigned)
        return name

    def branch(
        self,
        name: str,
        function: Function,
        variables: Mapping[Hashable, Variable],
        assigned: Sequence[Hashable],
    ) -> Function:
        """Return `function` with `variables` as operands; each result is made by a distinct call."""
        own = {shared_variable_key(self.index, key): v for key, v in self.variables.known.items()}
        params: dict[Hashable, Value] = {
            key: own[key].value
            if key in own
            else Value(self._unique(variable.value.name), variable.value.type)
            for key, variable in variables.items()
        }
        state_results = [own[key].current if key in own else params[key] for key in assigned]
        calls, results = list(function.body), list[Value]()
        defined = {value.name for call in calls for value in call.outputs}
        for value in (*function.results, *state_results):
            if value.name not in defined or value in results:
                copy = Value(self._unique(f"{value.name}/copy"), value.type)
                calls.append(Call("reshape", (value,), (copy,)))
                value = copy
            results.append(value)
        return replace(
            function,
            name=name,
            params=(*function.params, *params.values()),
            body=tuple(calls),
            results=tuple(results),
        )

    # ---- variables -----------------------------------------------------------------------------

    def _read(self, node: RawNode) -> None:
        key = self._handle(node)
        tensor = self.graph.tensors[node.outputs[0]]
        self.values[tensor.index] = self.variables.read(key, key[1], self._type(tensor))

    def _assign(self, node: RawNode) -> None:
        key = self._handle(node)
        self.variables.assign(key, key[1], self._value(node.inputs[1]))

    def _handle(self, node: RawNode) -> tuple[str, str]:
        if not node.inputs or node.inputs[0] not in self.handles:
            raise NotSupportedError("a variable whose handle comes from another subgraph")
        return self.handles[node.inputs[0]]

    def _call_once(self, node: RawNode) -> None:
        """Evaluate the initialization subgraph; its variables are the initial values."""
        apart = replace(self.work, constants={})  # its constants are not needed later
        once = _SubgraphImporter(apart, int(str(node.options["init_subgraph_index"])))
        function = once.run("once")
        if self.work.items:
            return  # the reason is reported already
        if function.params:
            raise NotSupportedError("an initialization that takes inputs")
        module = IRModule("once", {"once": function}, apart.constants, attrs={"entry": "once"})
        after = next_state(module, evaluate_graph(module, {}, self.work.ops, {}))
        for key, variable in once.variables.known.items():
            self.variables.set_initial(key, after[variable.value.name])


def _variable_name(node: RawNode) -> tuple[str, str]:
    """Return the key of a variable, (container, name), which all subgraphs share."""
    return str(node.options.get("container", "")), str(node.options.get("shared_name", ""))
