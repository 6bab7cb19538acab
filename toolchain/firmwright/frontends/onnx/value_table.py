"""The values of the graph that is being imported: definitions, readers and names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from firmwright.frontends.onnx import qdq
from firmwright.frontends.onnx.node_context import CallEmitter, ConstantValue, OnnxValue
from firmwright.frontends.onnx.protobuf import Message
from firmwright.frontends.onnx.qdq import (
    NarrowedValue,
    QdqOperands,
    QdqValue,
    QuantizedValue,
)
from firmwright.frontends.onnx.reader import OnnxValueInfo
from firmwright.ir.graph.attributes.movement import TransposeAttrs
from firmwright.ir.graph.nodes import Call, Value, unique_name


@dataclass(slots=True)
class ValueTable:
    """The values that the nodes so far define; None stands for unsupported ones.

    `readers` and `outputs` are those of the current graph, `fused_outputs` the results
    of nodes that were fused into earlier ones. `new_names` renames values at the end.
    """

    emitter: CallEmitter
    tensors: dict[str, QdqValue | None] = field(default_factory=dict)
    readers: dict[str, list[Message]] = field(default_factory=dict)
    fused_outputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    new_names: dict[str, str] = field(default_factory=dict)
    _materialized: dict[int, tuple[QdqValue, OnnxValue]] = field(default_factory=dict)

    def enter(
        self, nodes: Sequence[Message], outputs: Iterable[Message | OnnxValueInfo]
    ) -> None:
        """Start a graph, in which only its own nodes read its values."""
        self.readers = {}
        for node in nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.fused_outputs, self.outputs = set(), {x.name for x in outputs}

    def operands(self, node: Message) -> list[QdqValue | None]:
        """Return the inputs of a node, None for omitted and unsupported ones."""
        return [self.tensors.get(name) if name else None for name in node.input]

    def only_reader(self, node: Message) -> Message | None:
        """Return the only node that reads the only result, or None."""
        if len(node.output) != 1 or node.output[0] in self.outputs:
            return None
        reader, *others = self.readers.get(node.output[0], [None])
        return None if others else reader

    def materialize(self, value: QdqValue) -> OnnxValue:
        """Return the tensor as in the model; emit its calls only once."""
        if isinstance(value, Value | ConstantValue):
            return value
        if id(value) not in self._materialized:
            # The key's object is stored too, because ids are unique among living
            # objects only.
            tensor = qdq.materialize_value(self.emitter, value)
            self._materialized[id(value)] = (value, tensor)
        return self._materialized[id(value)][1]

    def materialize_all(self, inputs: QdqOperands) -> list[OnnxValue | None]:
        return [None if item is None else self.materialize(item) for item in inputs]

    def define(self, name: str, definition: QdqValue) -> None:
        """Define a value of the model, and name the computed one after it."""
        self.tensors[name] = definition
        tensor = definition
        if isinstance(tensor, QuantizedValue):
            tensor = tensor.value
        if isinstance(tensor, NarrowedValue):
            # The rounded value of an output has its name.
            tensor = definition if name in self.outputs else tensor.value
        if not isinstance(tensor, Value) or tensor.constant is not None:
            return
        # A value keeps its first name; inputs keep their own.
        maker = self.emitter.maker(tensor)
        if maker is None:
            return
        self.name(tensor, name)
        source, rank = maker.inputs[0], len(tensor.type.shape)
        is_own = source is not None and source.name.startswith(f"{self.emitter.stem}/")
        first = TransposeAttrs(perm=(0, rank - 1, *range(1, rank - 1)))
        is_channels_first = maker.attrs == first
        if source is not None and is_own and is_channels_first:
            # Usually only the operator's own result, with channels last, remains.
            self.name(source, f"{name}/moved")

    def name(self, value: Value, name: str) -> None:
        """Name a value as in the model unless it has a name or the name is in use."""
        if value.name not in self.new_names and name not in self.emitter.names:
            self.new_names[value.name] = unique_name(name, self.emitter.names)

    def renamed_call(self, call: Call) -> Call:
        inputs = tuple(None if v is None else self.renamed(v) for v in call.inputs)
        outputs = tuple(map(self.renamed, call.outputs))
        return replace(call, inputs=inputs, outputs=outputs)

    def renamed(self, value: Value) -> Value:
        return replace(value, name=self.new_names.get(value.name, value.name))
