"""The version of this package; pyproject.toml repeats it, and a test holds the two together."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
