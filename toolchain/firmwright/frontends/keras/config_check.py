"""Which classes the architecture of a Keras model names, before Keras creates them.

Keras resolves `module`, `class_name` and `registered_name` of any nested object of the
JSON. Only names of its own classes that execute nothing from the file are accepted
(classes.txt).
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from firmwright.base.json_input import Json, JsonObject, parse_json

_OWN_MODULE = re.compile(r"keras(\.\w+)*")
_TRAINING = "compile_config"
"""The part of a .keras file that Keras ignores with `compile=False`."""
_SHOWN_MAX = 8


def find_foreign_classes(text: str) -> str:
    """Return the names of classes that a model must not name, "" if there are none.

    `text` is the JSON of the model. Raise ValueError if it is not that of a model.
    """
    model = parse_json(text)
    if not isinstance(model, dict) or not isinstance(model.get("class_name"), str):
        raise ValueError("its architecture has no class name")
    loaded = {key: value for key, value in model.items() if key != _TRAINING}
    found: dict[str, None] = {}
    for item in _objects(loaded):
        name = _foreign_name(item)
        if name:
            found[name] = None
    more = ["..."] if len(found) > _SHOWN_MAX else []
    return ", ".join([*list(found)[:_SHOWN_MAX], *more])


def _objects(value: Json) -> Iterator[JsonObject]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += reversed(list(item.values()))
            if not item.keys().isdisjoint(("class_name", "registered_name")):
                yield item
        elif isinstance(item, list):
            waiting += reversed(item)


def _foreign_name(item: JsonObject) -> str:
    """Return the name of the object's class, "" if it is one of Keras's own."""
    name, module = item.get("class_name"), item.get("module")
    registered = item.get("registered_name")
    is_module_own = module is None or (
        isinstance(module, str) and _OWN_MODULE.fullmatch(module)
    )
    is_name_own = registered in (None, name)
    is_known = isinstance(name, str) and name in _own_classes()
    if is_module_own and is_name_own and is_known:
        return ""
    place = "" if is_module_own else f"{module!s:.60}."
    alias = "" if is_name_own else f" registered as {registered!s:.60}"
    return f"{place}{name!s:.60}{alias}"


@functools.lru_cache(maxsize=1)
def _own_classes() -> frozenset[str]:
    text = Path(__file__).with_name("classes.txt").read_text(encoding="utf-8")
    words: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            words.update(line.split())
    return frozenset(words)
