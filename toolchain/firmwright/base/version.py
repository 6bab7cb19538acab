"""The version of the package and of each public interface.

docs/reference/stability.md lists them.
"""

VERSION = "0.2.0"

ABI = 2
"""Version of the glue, the runtime and the link of board and host (FWR_ABI)."""
JSON_VERSION = 1
"""Version of the `--json` output (`schema`)."""
METADATA_VERSION = 1
"""Version of a project's metadata.json."""
IR_TEXT_VERSION = 2
"""Version of the text form of modules (.fwir)."""
BOARD_SCHEMA_VERSION = 1
"""Version of board.toml."""
BACKEND_API_VERSION = 1
"""Version of the base classes of backends and of their arguments."""
