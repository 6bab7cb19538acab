"""Records of backends in lowered modules, which compile without these installed.

A record names the later passes of the backend, which cannot be saved: reaching one is
an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NoReturn

from firmwright.base.dtypes import DType, get_dtype
from firmwright.base.errors import FirmwrightError, ModelError, PluginError
from firmwright.ir.core import Attr, Target
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.targets.backend import Backend
from firmwright.targets.registry import backend_of, target_kind_of
from firmwright.targets.target_kind import Hooks, PassSelection, TargetKind

_PLAIN = (
    "name",
    "doc",
    "device",
    "wait",
    "bus_master",
    "visible_pools",
    "pools",
    "check",
    "data_version",
    "estimated_by",
    "emulated_by",
)
_NOT_SAVED = ("meaning", "count")


class SavedBackend(Backend):
    """A backend from its record."""

    def __init__(self, record: Attr) -> None:
        self.record: dict[str, Any] = dict(record)  # type: ignore[arg-type]  # checked by the caller
        for name in _PLAIN:
            value = self.record.get(name, getattr(Backend, name))
            if type(value) is not type(getattr(Backend, name)):
                raise TypeError(f"{name} is {value!r}")
            setattr(self, name, value)
        self.files = frozenset(self._items("files"))
        self.symbols = frozenset(self._items("symbols"))
        self.intrinsics = tuple(map(self._intrinsic, self._items("intrinsics")))

    def _items(self, name: str) -> tuple[Any, ...]:
        return tuple(self.record.get(name, ()))

    @cached_property
    def kind(self) -> TargetKind:
        features = frozenset(self._items("features"))
        choice = dict(self._items("passes"))
        before = self._passes(choice.get("before", ()))
        after = self._passes(choice.get("after", ()))
        only = frozenset(choice["only"]) if "only" in choice else None
        names = self._items("tir_to_runtime")
        hook = tuple(self._pass(name, "tir_to_runtime") for name in names)
        skip = frozenset(choice.get("skip", ()))
        return TargetKind(
            self.name,
            self.doc,
            features=lambda target: features,
            is_core=False,
            hooks=Hooks(tir_to_runtime=hook or None),
            passes=PassSelection(only, skip, before, after),
            phases=self._passes(self._items("phases")),  # type: ignore[arg-type]  # phase names
        )

    def _passes(self, names: Any) -> dict[str, tuple[Pass, ...]]:
        passes = {}
        for place, steps in names:
            passes[place] = tuple(self._pass(name, place) for name in steps)
        return passes

    def _pass(self, name: str, place: str) -> Pass:
        return Pass(name, self._missing(f"the pass {name} ({place}) cannot run"))

    def _intrinsic(self, record: Any) -> Intrinsic:
        data = _with_dtype(dict(record), "result")
        records, text = data["operands"], dict(data["text"])
        operands = []
        for item in records:
            operands.append(Operand(**_with_dtype(dict(item), "dtype")))
        own = {"text": text, "operands": tuple(operands)}
        what = f"the function {data['name']} cannot be evaluated"
        return Intrinsic(meaning=self._missing(what), **{**data, **own})

    def _missing(self, problem: str) -> Callable[..., NoReturn]:
        def run(*values: object) -> NoReturn:
            message = f"{problem}: the backend {self.name} is not installed."
            raise PluginError(message, hint="install the package of this backend.")

        return run


def backend_in(module: IRModule, name: str) -> Backend | None:
    """Return the backend of a target, installed or recorded; None for cores."""
    return backend_of(module.targets[name]) or read_records(module).get(name)


def kind_in(module: IRModule, name: str) -> TargetKind:
    backend = backend_in(module, name)
    return backend.kind if backend else target_kind_of(module.targets[name])


def read_records(module: IRModule) -> dict[str, SavedBackend]:
    records = module.results.backend_records
    return dict(_read(records)) if records else {}


@lru_cache(16)
def _read(records: Any) -> Mapping[str, SavedBackend]:
    try:
        backends = {name: SavedBackend(record) for name, record in records}
        for backend in backends.values():
            _ = backend.kind  # computed from the record
    except (TypeError, ValueError, KeyError, AttributeError, FirmwrightError) as error:
        what = f"the module's attribute backends is malformed: {error}."
        raise ModelError(what, hint="save the module again.") from error
    return backends


def with_records(module: IRModule, records: Mapping[str, SavedBackend]) -> IRModule:
    attr = tuple((name, tuple(saved.record.items())) for name, saved in records.items())
    return replace(module, results=replace(module.results, backend_records=attr))


def make_record(
    target: Target,
    backend: Backend,
    intrinsics: Sequence[Intrinsic],
    files: Sequence[str],
    symbols: Collection[str],
) -> SavedBackend:
    """Record a backend with the intrinsics, files and functions that kernels use."""
    kind = backend.kind
    hook = kind.hooks.tir_to_runtime or ()
    data = {
        **{name: getattr(backend, name) for name in _PLAIN},
        "features": kind.features(target),
        "phases": kind.phases,
        "passes": kind.passes,
        "tir_to_runtime": hook if isinstance(hook, tuple) else (hook,),
        "intrinsics": tuple(intrinsics),
        "files": tuple(files),
        "symbols": frozenset(symbols),
    }
    record = [(name, _to_attr(item)) for name, item in data.items() if item]
    return SavedBackend(tuple(record))


def _to_attr(value: Any) -> Attr:
    match value:
        case Intrinsic() | Operand() | PassSelection():
            changed = {}
            for each in fields(value):
                item = getattr(value, each.name)
                is_set = each.default is MISSING or item != each.default
                if is_set and each.name not in _NOT_SAVED:
                    changed[each.name] = item
            return _to_attr(changed)
        case Pass() | DType():
            return value.name
        case Mapping():
            return tuple((str(key), _to_attr(item)) for key, item in value.items())
        case tuple() | list():
            return tuple(map(_to_attr, value))
        case frozenset():
            return tuple(sorted(value))
        case _:
            return value  # type: ignore[no-any-return]  # a number or a text


def _with_dtype(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {**data, name: get_dtype(data[name])} if name in data else data
