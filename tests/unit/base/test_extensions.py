"""What an entry point must be for the compiler's doors, and what two may define."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from firmwright.base import extensions
from firmwright.base.errors import PluginError
from firmwright.base.extensions import (
    ENTRY_POINT_GROUP,
    Extension,
    door_modules,
    merge_tables,
)


def offer(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    """Install the module `provider` with `value`, as an entry point of that name."""
    provider = ModuleType("provider")
    provider.VALUE = value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "provider", provider)
    points = [EntryPoint(name, "provider:VALUE", ENTRY_POINT_GROUP)]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)


def test_a_module_is_imported_when_its_door_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch, "more", Extension(name="more", operators=("colorsys",)))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert door_modules(lambda extension: extension.schedules) == []
    assert "colorsys" not in sys.modules
    (module,) = door_modules(lambda extension: extension.operators)
    assert module.__name__ == "colorsys"


@pytest.mark.parametrize("value", ["a text", Extension(name="another")])
def test_an_entry_point_that_is_no_extension_of_its_name_is_named(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    offer(monkeypatch, "more", value)
    with pytest.raises(PluginError, match="the entry point more of the group"):
        door_modules(lambda extension: extension.operators)


def test_a_module_that_cannot_be_imported_is_an_error_of_its_extension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch, "more", Extension(name="more", operators=("no_such_module",)))
    what = (
        "the import of no_such_module by the extension more raised ModuleNotFoundError"
    )
    with pytest.raises(PluginError, match=what):
        door_modules(lambda extension: extension.operators)


def test_two_modules_with_one_entry_are_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch, "more", Extension(name="more", tflite_importers=("provider",)))
    monkeypatch.setattr(sys.modules["provider"], "CONTENT", {"CAST": 1}, raising=False)
    package = ModuleType("core")
    package.__path__ = []
    door = lambda extension: extension.tflite_importers  # noqa: E731
    assert merge_tables(package, "CONTENT", door) == {"CAST": 1}
    twice = Extension(name="more", tflite_importers=("provider", "provider"))
    monkeypatch.setattr(sys.modules["provider"], "VALUE", twice)
    with pytest.raises(PluginError, match="the entry CAST of CONTENT is defined twice"):
        merge_tables(package, "CONTENT", door)
