"""Detection of values that can be computed in the memory of the state that they update.

No copy is needed if all reads of the state precede the computation of the value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from firmwright.ir.graph.nodes import Function


def find_state_aliases(
    entry: Function, views: Collection[str], spans: Sequence[tuple[int, int]]
) -> dict[str, str]:
    """Return the state of each such value, by the value's name.

    The calls of each range (first, end) in `spans` are fused.
    """
    if not entry.state:
        return {}
    begins = list(range(len(entry.body)))
    ends = list(begins)
    for first, end in spans:
        begins[first:end] = [first] * (end - first)
        ends[first:end] = [end - 1] * (end - first)
    last_read, maker = _last_reads(entry, views, ends), {}
    for index, call in enumerate(entry.body):
        maker.update({value.name: begins[index] for value in call.outputs})
    results = {value.name for value in entry.results}
    aliases: dict[str, str] = {}
    for state in entry.state:
        name = state.next.name
        defined_at = maker.get(name)
        if defined_at is None or name in results or name in aliases:
            continue
        if last_read.get(state.value.name, -1) < defined_at:
            aliases[name] = state.value.name
    return aliases


def _last_reads(entry: Function, views: Collection[str], ends: Sequence[int]) -> dict[str, int]:
    root = {value.name: value.name for value in entry.sources}
    last: dict[str, int] = {}
    for index, call in enumerate(entry.body):
        names = [value.name for value in call.inputs if value is not None and value.name in root]
        if names and call.outputs and call.outputs[0].name in views:
            root.update({value.name: root[names[0]] for value in call.outputs})
            continue
        last.update({root[name]: ends[index] for name in names})
    return last
