"""Recomputes a tensor that is reduced first and used again later.

A squeeze-and-excite block reduces a tensor x over its rows and later uses x again. If
row-wise calls compute x from a smaller tensor and memory is saved, they are duplicated
for the reduction, so that x never exists as a whole.
"""

from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import OpTable, RowReduction, RowWindow


def rematerialize(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with tensors rematerialized if `settings.recompute` is set."""
    entry = module.entry
    if not module.settings.recompute or not isinstance(entry, Function):
        return module
    body = _Rematerializer(module, ops, list(entry.body), entry)
    for call in entry.body:
        body.visit(call)
    if body.calls == list(entry.body):
        return module
    return module.with_function(replace(entry, body=tuple(body.calls)))


@dataclass
class _Rematerializer:
    """Changes `calls`, which are at first those of the entry."""

    module: IRModule
    ops: OpTable
    calls: list[Call]
    entry: Function
    names: UniqueNamer = field(init=False)

    def __post_init__(self) -> None:
        self.names = UniqueNamer(value.name for value in self.entry.values)

    def visit(self, fold: Call) -> None:
        """Rematerialize the input of `fold`, if a reduction, when others read it, too.

        before   chain -> x -> fold, ..., x -> other
        after    copy of the chain -> x_again -> fold, ..., chain -> x -> other
        """
        if not isinstance(self._row_access(fold), RowReduction):
            return
        x = fold.inputs[0]
        if x is None or x in self.entry.sinks:
            return
        others = [call for call in self._readers(x) if call is not fold]
        chain = self._chain(x)
        if not others or not chain:
            return
        other = others[0]
        at = self.calls.index(fold)
        self.calls[at : at + 1] = self._again(chain, fold)
        if self.calls.index(other) > at:  # compute x only before its later use
            for call in chain:
                self.calls.remove(call)
            position = self.calls.index(other)
            self.calls[position:position] = chain

    def _row_access(self, call: Call) -> RowWindow | RowReduction | None:
        if call.op.startswith("@"):
            return None
        return self.ops[call.op].row_access(make_op_call(call, self.module))

    def _readers(self, value: Value) -> list[Call]:
        return [call for call in self.calls if value in call.inputs]

    def _producer(self, value: Value) -> Call | None:
        for call in self.calls:
            if value in call.outputs:
                return call
        return None

    def _chain(self, x: Value) -> list[Call]:
        """Return the calls that compute x from the smallest earlier tensor, or []."""
        backwards: list[Call] = []
        best_length = 0
        value, smallest = x, x.type.size_bytes
        while True:
            producer = self._producer(value)
            source = self._row_source(producer) if producer is not None else None
            if producer is None or source is None:
                break
            backwards.append(producer)
            value = source
            if value.type.size_bytes < smallest:
                best_length, smallest = len(backwards), value.type.size_bytes
            if len(self._readers(value)) > 1 or value in self.entry.sinks:
                break
        chain = backwards[:best_length]
        chain.reverse()
        return chain

    def _row_source(self, call: Call) -> Value | None:
        """Return the only input that a row-wise call reads by rows, otherwise None."""
        rows = self._row_access(call)
        if not isinstance(rows, RowWindow):
            return None
        inputs = rows.row_inputs(call)
        return inputs[0] if len(inputs) == 1 else None

    def _again(self, chain: list[Call], fold: Call) -> list[Call]:
        """Return renamed copies of the chain, and the reduction that reads them."""
        renamed: dict[str, Value] = {}
        copies: list[Call] = []
        for call in chain:
            copy = with_inputs_renamed(call, renamed)
            for value in call.outputs:
                name = self.names.unique(f"{value.name}_again")
                renamed[value.name] = replace(value, name=name)
            outputs = tuple(renamed[value.name] for value in call.outputs)
            copies.append(replace(copy, outputs=outputs))
        return [*copies, with_inputs_renamed(fold, renamed)]


def with_inputs_renamed(call: Call, renamed: dict[str, Value]) -> Call:
    """Return the call with the inputs replaced whose names `renamed` has."""
    inputs: list[Value | None] = []
    for value in call.inputs:
        inputs.append(None if value is None else renamed.get(value.name, value))
    return replace(call, inputs=tuple(inputs))
