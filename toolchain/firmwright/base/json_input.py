"""Parsing of untrusted JSON."""

import json
from typing import Any


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error
