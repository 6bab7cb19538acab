"""Calls of the methods of backends: exceptions and wrong results are their errors.

The other packages call a backend's methods only here; `pattern_matching` calls the
predicates of its table, `target_hooks` the hooks of its kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.errors import PluginError
from firmwright.base.plugin_calls import plugin_call
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import Match
from firmwright.ir.module import IRModule
from firmwright.targets.backend import Backend
from firmwright.targets.target_kind import TargetKind


@dataclass(frozen=True, slots=True)
class LibrarySources:
    """The files of a backend's library by name, and compiler flags for its C files."""

    files: Mapping[str, bytes]
    flags: Sequence[str]


def modeled_cost(backend: Backend, match: Match) -> int | None:
    """Return the modeled cycles of a run of the match; None if it must be measured."""
    last = match.calls[-1]
    place = f"for the {last.op} that computes {last.outputs[0].name}"
    label = f"{_label(backend, 'cost')}, {place},"
    with plugin_call(label):
        cycles = backend.cost(match)
    return _check_cycles(label, cycles)


def supported_features(kind: TargetKind, target: Target) -> frozenset[str]:
    """Return the features that a backend declares for a target of its kind."""
    label = f"`features` of the backend {kind.name}"
    with plugin_call(label):
        features = kind.features(target)
    if not isinstance(features, frozenset):
        raise _wrong_result(label, features, "a frozenset of texts")
    return features


def transfer_cycles(backend: Backend, size_bytes: int) -> int | None:
    """Return the declared cycles of a transfer; None is the time of the board's DMA."""
    label = _label(backend, "transfer")
    with plugin_call(label):
        cycles = backend.transfer(size_bytes)
    return _check_cycles(label, cycles)


def rejection_reasons(
    backend: Backend, function: Function, module: IRModule, target: Target
) -> Mapping[str, str]:
    """Return why calls of `function` stay on the core.

    Keys are the names of their first outputs.
    """
    label = f"{_label(backend, 'rejections')}, for the graph @{function.name},"
    with plugin_call(label):
        reasons = dict(backend.rejections(function, module, target))
    for name, reason in reasons.items():
        if not isinstance(name, str) or not isinstance(reason, str):
            expected = "reasons by the names of tensors, as texts"
            raise _wrong_result(label, (name, reason), expected)
    return reasons


def library_version(backend: Backend, target: Target) -> str:
    label = _label(backend, "library")
    with plugin_call(label):
        version = backend.library(target)
    if not isinstance(version, str):
        raise _wrong_result(label, version, "the version of a library, a text")
    return version


def library_sources(
    backend: Backend, target: Target, symbols: frozenset[str]
) -> LibrarySources:
    """Return the library files that the functions `symbols` need, with their flags."""
    label = _label(backend, "c_files")
    with plugin_call(label):
        files = dict(backend.c_files(target, symbols))
    for name, data in files.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            returned = name, type(data).__name__
            raise _wrong_result(label, returned, "bytes by the names of files")
    label = _label(backend, "c_flags")
    with plugin_call(label):
        flags = list(backend.c_flags(target))
    for flag in flags:
        if not isinstance(flag, str):
            raise _wrong_result(label, flag, "compiler flags, a list of texts")
    return LibrarySources(files, flags)


def _label(backend: Backend, method: str) -> str:
    return f"`{method}` of the backend {backend.name}"


def _check_cycles(label: str, cycles: object) -> int | None:
    is_count = isinstance(cycles, int) and not isinstance(cycles, bool) and cycles >= 0
    if cycles is not None and not is_count:
        raise _wrong_result(label, cycles, "cycles, an integer from 0, or None")
    return cycles  # type: ignore[return-value]  # checked above


def _wrong_result(label: str, value: object, expected: str) -> PluginError:
    shown = repr(value)
    what = f"{label} returned {shown[:80]}, where it has to return {expected}."
    return PluginError(what, hint="correct the extension, or ask its vendor.")
