"""A tree of files as a zip archive."""

import io
import zipfile

from firmwright.artifacts import SourceTree

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first date of a zip archive, so that its bytes do not depend on the time."""
_UNIX = 3
"""The number of the system that made an entry, in place of the host's."""


def zip_tree(tree: SourceTree) -> bytes:
    """Return a zip archive whose bytes depend only on the tree."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in tree.encoded().items():
            info = zipfile.ZipInfo(path, _LONG_AGO)
            info.create_system = _UNIX
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()
