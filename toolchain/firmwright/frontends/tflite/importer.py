"""RawModel -> IRModule: names, types and constants become graph values, nodes become calls.

Variables are no operators: what is assigned to one is what later nodes read, and what it holds at
the end of a run is the state of the function. What runs once, before the first run, is computed
here: it gives the first values.

The meaning of every operator comes from its file under `ops/`: this module only finds the record,
hands it the raw node, and collects what cannot be taken. Calls of constants only are computed
here. All unsupported operators and dynamic shapes of a model are reported at once, each with its
place.
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
"""What calls of constants may become as a constant, however few bytes they are made of."""
_KNOWN_BYTES = 1 << 16
"""What they may be computed to at all."""


def import_model(
    raw: RawModel,
    name: str,
    imports: Mapping[str, OpDef],
    data: bytes,
    ops: OpTable,
    signature: str = "",
    is_claimed: CustomOpPredicate = accept_no_custom_op,
) -> IRModule:
    """The module of `raw`'s first subgraph, or that of `signature`.

    UnsupportedError names everything that is missing, UsageError the signatures that there are.
    `imports` is the table `tflite:NAME` -> operator that imports it (an importer may answer with
    another of `ops`), `is_claimed` which others are imported as `custom`; `data` the file's bytes
    (for its hash).
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
            hint="`firmwright ops` for what is supported, or convert the model with static "
            "shapes and full integer or float quantisation.",
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
    """The subgraph of that signature; the first one without any."""
    if not signature:
        return 0
    known = {item.key: item.subgraph for item in raw.signatures}
    if signature not in known:
        raise UsageError(
            f"the model has no signature {signature!r}.",
            where=raw.file,
            hint=f"one of {', '.join(known)}." if known else "the file's name alone.",
        )
    return known[signature]


@dataclass
class _SubgraphImporter:
    """One subgraph on its way to a graph function."""

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
        """Outputs of nodes: one that is said to be variable is an output all the same."""
        return frozenset(index for node in self.graph.nodes for index in node.outputs)

    def run(self, name: str) -> Function:
        function = self.stateless(name)
        return replace(function, state=self.variables.state(self.work.constant))

    def stateless(self, name: str) -> Function:
        """The function without what it keeps."""
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
        found = find_dtype(tensor.dtype)
        if found is None:
            raise NotSupportedError(f"element type {tensor.dtype} of tensor {tensor.name}")
        return TensorType(tensor.shape, found, tensor.quantization)

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
                made = Constant(name, kind.dtype, kind.shape, tensor.buffer)
                constant = self.work.constant(made)
            self.values[index] = Value(name, kind, constant)
        return self.values[index]

    def _unique(self, name: str) -> str:
        """Tensor names are kept as they are; TFLite allows equal ones, the IR does not."""
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
        found = find_dtype(tensor.dtype)
        if tensor.buffer is None or found is None:
            return None
        return np.frombuffer(tensor.buffer, found.np).reshape(tensor.shape)

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
        used = [index for index in (*node.inputs, *node.outputs) if index != NO_TENSOR]
        importer = self.work.importer(node.op)
        if importer is None:
            raise NotSupportedError("this operator is not supported")
        if bad.intersection(used):
            dtypes = {self.graph.tensors[i].dtype for i in used}
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
        kept = [node.inputs[position] for position in imported.inputs]
        inputs = tuple(None if i == NO_TENSOR else self._value(i) for i in kept)
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
        """Computes a call of constants only; True if its outputs are constants now.

        Outputs of the model stay calls, and so does what would take far more bytes than its inputs
        do; what they hold is known to the operators behind them all the same.
        """
        if call.variables:
            return False
        if len({*opdef.numerics.values()}) > 1 or len(call.outputs) != len(places):
            return False
        described = self._describe(call)
        given = sum(c.size_bytes for c in described.constants if c is not None)
        made = sum(kind.size_bytes for kind in described.outputs)
        if made > max(_KNOWN_BYTES, given):
            return False
        with np.errstate(all="ignore"):  # infinity and NaN are values among floats
            results = opdef.reference(described, [c.array() for c in described.constants if c])
        self.known.update(zip(places, results, strict=True))
        if made > max(_FOLDED_BYTES, given) or set(places) & set(self.graph.outputs):
            return False
        for index, value, result in zip(places, call.outputs, results, strict=True):
            self._becomes(index, value, result)
        return True

    def _decode(self, node: RawNode) -> None:
        """Compressed constants are constants; those that are decoded twice are kept once."""
        tensors = self.graph.tensors
        for place, index in enumerate(node.outputs):
            given = [tensors[i] for i in node.inputs[2 * place : 2 * place + 2]]
            parts = [tensor.buffer for tensor in given if tensor.buffer is not None]
            if len(parts) != 2:
                raise NotSupportedError("data to be decoded that is no constant")
            value = self._value(index)
            self.known[index] = decompress_constants.decompress(parts[0], parts[1], value.type)
            self._becomes(index, value, self.known[index])

    def _becomes(self, index: int, value: Value, known: Array) -> None:
        constant = Constant.from_array(value.name, known, value.type.dtype)
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
        """A call that runs other subgraphs, by the names that they get as functions.

        The variables that these touch are further values that they take and give.
        """
        indices = {attr: int(str(node.options[option])) for attr, option in parts.items()}
        kept, changed = self._kept(indices)
        if op == "while":  # what a loop takes it hands on to its next round
            changed = list(kept)
        attrs: dict[str, Attr] = {
            attr: self._branch(attr, index, kept, [] if attr == "cond" else changed)
            for attr, index in indices.items()
        }
        before = [
            self.variables.read(key, v.value.name, v.value.type, v.initial.flat[0])
            for key, v in kept.items()
        ]
        inputs = (*(self._value(i) for i in node.inputs), *before)
        after = {
            key: Value(self._unique(f"{kept[key].value.name}/next"), kept[key].value.type)
            for key in changed
        }
        outputs = (*(self._value(i) for i in node.outputs), *after.values())
        self.calls.append(Call(op, inputs, outputs, attrs, node.span))
        for key, value in after.items():
            self.variables.assign(key, kept[key].value.name, value)

    def _kept(self, indices: Mapping[str, int]) -> tuple[dict[Hashable, Variable], list[Hashable]]:
        """The variables that subgraphs touch, by what they are known by here, and those assigned.

        A variable tensor is its subgraph's own, whoever runs it.
        """
        kept: dict[Hashable, Variable] = {}
        changed: dict[Hashable, None] = {}
        for attr, index in indices.items():
            if index not in self.work.branches:
                graph = _SubgraphImporter(self.work, index)
                self.work.branches[index] = graph, graph.stateless(f"{attr}_{index}")
            variables = self.work.branches[index][0].variables
            if variables.initial_values:
                raise NotSupportedError("variables that are set once, inside of a branch or loop")
            for own, variable in variables.known.items():
                key = shared_variable_key(index, own)
                kept.setdefault(key, variable)
                if variable.current != variable.value:
                    changed[key] = None
            if attr == "cond" and changed:
                raise NotSupportedError("a variable that a loop's condition assigns")
        return kept, list(changed)

    def _branch(
        self, attr: str, index: int, kept: Mapping[Hashable, Variable], given: Sequence[Hashable]
    ) -> str:
        """The name of subgraph `index` as a function that takes `kept` and gives `given` too."""
        graph, function = self.work.branches[index]
        name = f"{attr}_{index}" + (f"_{len(self.work.functions)}" if kept else "")
        if name not in self.work.functions:
            self.work.functions[name] = graph.branch(name, function, kept, given)
        return name

    def branch(
        self,
        name: str,
        function: Function,
        kept: Mapping[Hashable, Variable],
        given: Sequence[Hashable],
    ) -> Function:
        """`function`, of this subgraph; its results are all made by calls of it, each once."""
        own = {shared_variable_key(self.index, key): v for key, v in self.variables.known.items()}
        params: dict[Hashable, Value] = {
            key: own[key].value
            if key in own
            else Value(self._unique(variable.value.name), variable.value.type)
            for key, variable in kept.items()
        }
        wanted = [own[key].current if key in own else params[key] for key in given]
        calls, results = list(function.body), list[Value]()
        made = {value.name for call in calls for value in call.outputs}
        for value in (*function.results, *wanted):
            if value.name not in made or value in results:
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
            raise NotSupportedError("a variable whose handle is not made in its own subgraph")
        return self.handles[node.inputs[0]]

    def _call_once(self, node: RawNode) -> None:
        """What the subgraph leaves in variables is what they hold before the first run."""
        apart = replace(self.work, constants={})  # what it alone needs is not needed later
        once = _SubgraphImporter(apart, int(str(node.options["init_subgraph_index"])))
        function = once.run("once")
        if self.work.items:
            return  # the reason is known
        if function.params:
            raise NotSupportedError("an initialisation that takes inputs")
        module = IRModule("once", {"once": function}, apart.constants, attrs={"entry": "once"})
        after = next_state(module, evaluate_graph(module, {}, self.work.ops, {}))
        for key, variable in once.variables.known.items():
            self.variables.set_initial(key, after[variable.value.name])


def _variable_name(node: RawNode) -> tuple[str, str]:
    """A variable is known by its container and name, in every subgraph alike."""
    return str(node.options.get("container", "")), str(node.options.get("shared_name", ""))
