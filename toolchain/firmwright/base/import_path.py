"""The import path without the current folder, which may contain files of any origin.

Python puts the current folder on `sys.path` for `python -m`, for `python -c`, in an
interactive session, and for an empty element of PYTHONPATH.
"""

import os
import sys


def trusted_import_path() -> list[str]:
    """Return the absolute folders of `sys.path`, without the current one.

    The current folder remains if PYTHONPATH names it, or if it is where this package
    is.
    """
    here = os.path.realpath(os.curdir)
    named = {os.path.realpath(folder) for folder in python_path()}
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    wanted = {*named, os.path.realpath(own)}
    folders = [folder for folder in sys.path if os.path.isabs(folder)]
    return [f for f in folders if os.path.realpath(f) != here or here in wanted]


def python_path() -> list[str]:
    """Return the elements of PYTHONPATH as absolute folders, without the empty ones."""
    if sys.flags.ignore_environment:
        return []
    elements = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(element) for element in elements if element]
