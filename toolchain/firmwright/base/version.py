"""The version of the package and of each public interface (docs/stability.md)."""

from typing import Final

VERSION: Final = "0.1.0"

ABI: Final = 2
"""Version of the generated glue, the runtime and the link between board and host (FWR_ABI)."""
JSON_VERSION: Final = 1
"""Version of the `--json` output (`schema`)."""
METADATA_VERSION: Final = 1
"""Version of a project's metadata.json."""
IR_TEXT_VERSION: Final = 1
"""Version of the text form of modules (.fwir)."""
BOARD_SCHEMA_VERSION: Final = 1
"""Version of board.toml."""
BACKEND_API_VERSION: Final = 1
"""Version of the base classes of backends and of their arguments."""
