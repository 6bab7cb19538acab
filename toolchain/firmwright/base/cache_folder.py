"""The folder in which results are kept between commands."""

import logging
import os
import tempfile
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.platform_compat import current_user_tag

log = logging.getLogger(__name__)


def cache_root() -> Path:
    """Return the cache folder: FIRMWRIGHT_CACHE, the user's cache, or a temporary one.

    Raise UsageError if another user made the temporary folder, since builds in it are
    executed.
    """
    override = os.environ.get("FIRMWRIGHT_CACHE")
    if override:
        return Path(override)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = Path(home) / "firmwright"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError as error:
        log.debug("no cache in %s: %s", root, error)
    root = Path(tempfile.gettempdir()) / f"firmwright-{current_user_tag()}"
    root.mkdir(mode=0o700, exist_ok=True)
    getuid = getattr(os, "getuid", None)
    if root.is_symlink() or (getuid is not None and root.stat().st_uid != getuid()):
        what = "the folder for temporary results belongs to another user."
        hint = "set FIRMWRIGHT_CACHE to a folder of yours."
        raise UsageError(what, where=str(root), hint=hint)
    return root
