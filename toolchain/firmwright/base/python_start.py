"""The start of a Python child: `python -I python_start.py MODULE ARGUMENT...`.

The parent hands its import path over in the environment, because an isolated
interpreter ignores PYTHONPATH and the user's packages.
"""

import os
import runpy
import sys

_folders = os.environ.get("FIRMWRIGHT_IMPORT_PATH")
if _folders:
    sys.path[:] = _folders.split(os.pathsep)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
