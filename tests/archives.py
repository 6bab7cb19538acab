"""Unpacking of archives that tests have made."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack_tar(archive: Path, folder: Path) -> None:
    """Extract a tar archive, as data alone where Python has filters (3.11.4)."""
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
