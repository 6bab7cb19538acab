"""The version of this package, and of each surface that others build on: the one place for all.

pyproject.toml repeats the package's, runtime_c/fwr.h the ABI's, and docs/stability.md all of them;
tests hold them together. What a surface promises stands there too.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

ABI: Final = 2
"""Of the generated glue, the runtime and the link between board and host (FWR_ABI)."""
JSON_VERSION: Final = 1
"""Of what verbs say with `--json` (`schema`)."""
METADATA_VERSION: Final = 1
"""Of a project's metadata.json."""
IR_TEXT_VERSION: Final = 1
"""Of modules as text (.fwir)."""
BOARD_SCHEMA_VERSION: Final = 1
"""Of board.toml."""
BACKEND_API_VERSION: Final = 1
"""Of what backends derive from and are handed."""
