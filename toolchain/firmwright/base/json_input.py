"""Reading JSON that others wrote.

In: text. Out: its value. ValueError is the only error, also for brackets nested by the thousand,
for which Python's own reader runs out of stack.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str) -> Any:
    """The value that `text` stands for; ValueError where it is no JSON."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deep") from error
