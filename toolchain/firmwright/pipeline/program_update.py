"""Checks that new weights keep the code that the metadata of a compilation records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from firmwright.base.errors import MismatchError, UsageError
from firmwright.base.version import VERSION
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import (
    ProgramRecord,
    digest_code,
    digest_kernel,
    record_selection,
)
from firmwright.lower.lowering import Lowering
from firmwright.lower.recorded_kernels import difference_error
from firmwright.package.option_serialization import serialize_options
from firmwright.pipeline.options import Options

_KERNEL_OF_CALL = re.compile(
    r"(?P<op>\w+?)_(?P<index>\d+)(?P<row>_row(?:s(?P<band>\d+))?)?(_sums)?$"
)
_OWN_OPTIONS = frozenset({"board", "name", "tuning", "update_of"})
"""Options that may differ in an update, or that are compared in another way."""


def check_same_options(record: ProgramRecord, options: Options, board: str) -> None:
    """Raise UsageError unless version, board and options are those of the record."""
    if record.tool_version != VERSION:
        what = (
            f"the code to update was compiled by version {record.tool_version}, not "
            f"{VERSION}."
        )
        hint = f"install that version: pip install firmwright=={record.tool_version}."
        raise UsageError(what, hint=hint)
    if record.board != board:
        what = f"the code to update is for the board {record.board}, not {board}."
        raise UsageError(what, hint=f"--board {record.board}.")
    ours, theirs = _plain(serialize_options(options)), _plain(record.options)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            option = name.replace("_", "-")
            before = json.dumps(theirs.get(name, "not given"))
            now = json.dumps(ours.get(name, "not given"))
            what = f"the code to update was compiled with another {option}"
            what += f": {before}, not {now}."
            raise UsageError(what, hint="give the options of that compilation.")


def _plain(options: Mapping[str, object]) -> dict[str, object]:
    plain: dict[str, object] = json.loads(json.dumps(dict(options)))
    return {name: value for name, value in plain.items() if name not in _OWN_OPTIONS}


def check_kernels(
    graph: IRModule, selected: IRModule, lowering: Lowering, record: ProgramRecord
) -> None:
    """Raise MismatchError, with call and reason, for a kernel unlike the recorded."""
    found = record_selection(graph, selected)
    for name, kernel in found.kernels.items():
        before = record.kernels.get(name)
        if before is None or before == kernel:
            continue
        match = _KERNEL_OF_CALL.match(name)
        entry = graph.entry
        # The AOT main and the kernels of backends are compared below.
        if match is None or not isinstance(entry, Function):
            continue
        if name not in _names(graph, match):
            continue
        index = int(match["index"])

        def suits(
            module: IRModule, match: re.Match[str] = match, name: str = name
        ) -> bool:
            digest = _digest(replace(lowering, module=module), match)
            return digest == record.kernels[name].code

        raise difference_error(graph, record, index, name, suits)
    for name in sorted(found.kernels.keys() | record.kernels.keys()):
        if found.kernels.get(name) != record.kernels.get(name):
            text = f"the function {name}"
            if name == "run":
                text = "the order or memory of the calls"
            what = f"{text} is not that of the code to update."
            raise MismatchError(what, where=graph.name, hint="update the code, too.")


def _names(graph: IRModule, match: re.Match[str]) -> set[str]:
    index, body = int(match["index"]), graph.entry_graph.body
    is_own = index < len(body) and body[index].op == match["op"]
    return {match[0]} if is_own else set()


def _digest(lowering: Lowering, match: re.Match[str]) -> str:
    """Return the digest of a recorded kernel for these weights, "" if impossible."""
    index, record = int(match["index"]), lowering.record
    assert record is not None
    call = lowering.entry.body[index]
    if match["row"]:
        rows = lowering.rows(index, int(match["band"] or 1))
        try:
            candidates = rows.candidates if rows else ()
        except MismatchError:
            return ""
        return digest_kernel(candidates[0].function) if candidates else ""
    built = lowering.built(match[0], call, call, record.kernels[match[0]].schedule)
    return "" if built is None else digest_kernel(built.function)


def check_code(record: ProgramRecord, module: IRModule) -> None:
    """Raise MismatchError unless the finished `module` has the code of the record."""
    if digest_code(module) == record.code:
        return
    what = "the code differs from the one to update after the choice of kernels"
    if not module.settings.weight_independent:
        what += "; constants may be equal now, or may have been equal before"
    hint = (
        "update code and weights together; --weight-independent keeps equal constants "
        "apart."
    )
    raise MismatchError(f"{what}.", where=module.name, hint=hint)
