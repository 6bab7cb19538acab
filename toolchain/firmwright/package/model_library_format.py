"""The Model Library Format, version 7: one tar of sources and their metadata.

The layout is TVM's; the functions have our calling convention. The archive is reproducible: its
date is the epoch.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any, Final

from firmwright.artifacts import SourceTree

VERSION: Final = 7
_DATE: Final = "1970-01-01 00:00:00Z"
_DEVICE_CPU: Final = 1


def build_mlf(name: str, tree: SourceTree, metadata: Mapping[str, Any], text: str) -> SourceTree:
    """Return the contents of the archive; `text` is the module's IR text."""
    content: dict[str, str | bytes] = {}
    for path, data in tree.files.items():
        folder, _, file = path.rpartition("/")
        if folder == "model":
            kind = "include" if file == f"{name}.h" else "src"
            content[f"codegen/host/{kind}/{file}"] = data
    content[f"src/{name}.fwir"] = text
    content[f"parameters/{name}.params"] = b""
    content["firmwright.json"] = tree.files["metadata.json"]
    content["metadata.json"] = _metadata(name, metadata)
    return SourceTree(content)


def tar_tree(tree: SourceTree) -> bytes:
    """Return a reproducible .tar of the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in tree.files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(f"./{path}")
            info.size, info.mode, info.mtime = len(data), 0o644, 0
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _metadata(name: str, metadata: Mapping[str, Any]) -> str:
    facts = {
        "version": VERSION,
        "modules": {
            name: {
                "model_name": name,
                "export_datetime": _DATE,
                "memory": {"functions": _functions(metadata)},
                "target": sorted(metadata["target"].values()),
                "executors": ["aot"],
                "style": "full-model",
                "external_dependencies": [],
            }
        },
    }
    return json.dumps(facts, indent=2, sort_keys=True) + "\n"


def _functions(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function table: the main holds all memory, since operators share its plan."""
    binding = metadata["io"]
    tensors = {kind: {row["name"]: _tensor(row) for row in binding[kind]}
               for kind in ("inputs", "outputs")}  # fmt: skip
    rows = [*binding["inputs"], *binding["outputs"]]
    main = {
        "device": _DEVICE_CPU,
        "workspace_size_bytes": metadata["workspace_bytes"],
        "constants_size_bytes": metadata["constants_bytes"],
        "io_size_bytes": sum(row["size_bytes"] for row in rows),
        **tensors,
    }
    kernels = sorted({str(row["kernel"]) for row in metadata["operators"]})
    nothing = [{"device": _DEVICE_CPU, "workspace_size_bytes": 0}]
    return {
        "main": [main],
        "operator_functions": [{"function_name": k, "workspace": nothing} for k in kernels],
    }


def _tensor(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"size": row["size_bytes"], "dtype": row["dtype"], "shape": row["shape"]}
