"""Recomputes a tensor that is reduced first and used again later.

A squeeze-and-excite block reduces a tensor x over its rows and later uses x again. If row-wise
calls compute x from a smaller tensor and memory is saved, they are duplicated for the reduction, so
that x never exists as a whole.
"""

from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ops.opdef import OpTable, RowReduction, RowWindow


def rematerialize(module: IRModule, ops: OpTable) -> IRModule:
    """Return the module with tensors rematerialized if `module.settings.recompute` is set."""
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
    module: IRModule
    ops: OpTable
    calls: list[Call]
    entry: Function
    names: UniqueNamer = field(init=False)

    def __post_init__(self) -> None:
        self.names = UniqueNamer(value.name for value in self.entry.values)

    def visit(self, fold: Call) -> None:
        is_reduction = isinstance(self._row_access(fold), RowReduction)
        x = fold.inputs[0] if is_reduction else None
        if x is None or x in self.entry.sinks:
            return
        other = next((call for call in self._readers(x) if call is not fold), None)
        chain = self._chain(x)
        if other is None or not chain:
            return
        again = self._again(chain, fold)
        at = self.calls.index(fold)
        self.calls[at : at + 1] = again
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

    def _chain(self, x: Value) -> list[Call]:
        """Return the calls that compute x from the smallest earlier tensor; [] if x is smallest."""
        chain, best, value = [], 0, x
        smallest = x.type.size_bytes
        while True:
            producer = next((call for call in self.calls if value in call.outputs), None)
            source = self._row_source(producer) if producer is not None else None
            if producer is None or source is None:
                break
            chain.append(producer)
            value = source
            if value.type.size_bytes < smallest:
                best, smallest = len(chain), value.type.size_bytes
            if len(self._readers(value)) > 1 or value in self.entry.sinks:
                break
        return chain[:best][::-1]

    def _row_source(self, call: Call) -> Value | None:
        rows = self._row_access(call)
        inputs = rows.row_inputs(call) if isinstance(rows, RowWindow) else ()
        return inputs[0] if len(inputs) == 1 else None

    def _again(self, chain: list[Call], fold: Call) -> list[Call]:
        """Return copies of the chain under new names, and the reduction that reads them."""
        renamed: dict[str, Value] = {}
        copies = []
        for call in chain:
            outputs = tuple(
                replace(value, name=self.names.unique(f"{value.name}_again"))
                for value in call.outputs
            )
            copies.append(replace(with_inputs_renamed(call, renamed), outputs=outputs))
            renamed |= {old.name: new for old, new in zip(call.outputs, outputs, strict=True)}
        return [*copies, with_inputs_renamed(fold, renamed)]


def with_inputs_renamed(call: Call, renamed: dict[str, Value]) -> Call:
    inputs = tuple(renamed.get(v.name, v) if v is not None else None for v in call.inputs)
    return replace(call, inputs=inputs)
