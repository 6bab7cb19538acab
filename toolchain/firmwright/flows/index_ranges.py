"""Ranges of the inputs that are indices, so that random samples are valid for the reference."""

import re
from collections.abc import Mapping

from firmwright.flows.reference_outputs import reference_runtime
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.pipeline import Compilation

_CAST = re.compile(r"int\d+\(a\)")
_CHECKING_RUNTIMES = ("onnxruntime", "pytorch")
_INDEXING = ("dynamic_gather", "dynamic_scatter")


def index_ranges(compiled: Compilation) -> Mapping[str, tuple[int, int]]:
    """Return the range of each input that selects elements of a tensor.

    Only ONNX Runtime and PyTorch refuse indices out of range.
    """
    entry = compiled.imported.entry
    if not isinstance(entry, Function) or reference_runtime(compiled) not in _CHECKING_RUNTIMES:
        return {}
    limits: dict[str, int] = {}
    for call in reversed(entry.body):
        limit = _limit(call, limits)
        source = call.inputs[1] if call.op in _INDEXING else call.inputs[0] if call.inputs else None
        if limit is not None and isinstance(source, Value):
            limits[source.name] = min(limit, limits.get(source.name, limit))
    return {param.name: (0, limits[param.name]) for param in entry.params if param.name in limits}


def _limit(call: Call, limits: Mapping[str, int]) -> int | None:
    if call.op in _INDEXING and call.attrs.get("mode") in ("along", "elements"):
        data = call.inputs[0]
        assert data is not None
        return data.type.shape[int(str(call.attrs["axis"]))] - 1
    is_same = call.op in ("reshape", "broadcast_to", "transpose") or (
        call.op == "expression" and _CAST.fullmatch(str(call.attrs["formula"]))
    )
    return limits.get(call.outputs[0].name) if is_same else None
