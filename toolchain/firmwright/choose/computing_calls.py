"""The calls of the AOT main that compute requested tensors.

A view is computed by the calls that compute its memory, a concatenation of views by
those of its parts, and a copy by the device that copies, if that is requested, or by
the calls of its source.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from firmwright.base.errors import UsageError
from firmwright.choose.aliases import aliases_input
from firmwright.ir.graph.devices import COPY_OP, device_name
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.module import IRModule
from firmwright.ir.requests import PlacementRequest


@dataclass(frozen=True)
class ComputingCalls:
    """`numbers` are the operator indices of calls with a kernel, by computed value."""

    module: IRModule
    numbers: Mapping[str, Sequence[int]]

    @cached_property
    def _makers(self) -> Mapping[str, Call]:
        """The call that defines each value."""
        makers: dict[str, Call] = {}
        for graph in self.module.graphs:
            for call in graph.body:
                for value in call.outputs:
                    makers[value.name] = call
        return makers

    def by_request(self) -> dict[str, tuple[int, ...]]:
        """Return the calls of tensors with requested device; UsageError if none."""
        inside = {request.named for request in self.module.requests}
        found: dict[str, tuple[int, ...]] = {}
        for request in self.module.requests:
            maker = self._makers.get(request.tensor)
            if not request.device or maker is None or request.tensor in inside:
                continue
            numbers = tuple(self._computing(request, request.tensor))
            found[request.tensor] = numbers
            if not numbers:
                what = (
                    f"no call computes the tensor {request.tensor}, as {request.reason}"
                    " requires"
                )
                hint = "the tensor that is computed, or a pool."
                raise UsageError(f"{what}.", where=self.module.name, hint=hint)
        return found

    def _computing(self, request: PlacementRequest, name: str) -> Iterator[int]:
        """Yield the operator indices of the calls that compute the value `name`."""
        call = self._makers.get(name)
        if call is None or self.module.graphs_of(call):
            return
        sources = self._sources(request, call)
        if not sources:
            yield from self.numbers.get(name, ())
        for source in sources:
            yield from self._computing(request, source.name)

    def _sources(self, request: PlacementRequest, call: Call) -> tuple[Value, ...]:
        """Return the values in whose place `call` computes nothing."""
        is_copy = call.op == COPY_OP or self._is_copy_kernel(call)
        if is_copy and device_name(call.outputs[0].virtual_device) != request.device:
            return call.variables[:1]
        if any(value.name in self.numbers for value in call.outputs):
            return ()
        return call.variables[:1] if aliases_input(call) else call.variables

    def _is_copy_kernel(self, call: Call) -> bool:
        callee = self.module.callee(call.op)
        return callee is not None and callee.attrs.get("op") == COPY_OP
