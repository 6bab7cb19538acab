"""`python -m firmwright VERB`: the same as `firmwright VERB`."""

import gc
import sys

_ALLOCATIONS_PER_COLLECTION = 100_000
"""IR consists of many small frozen values without cycles.

With Python's default of 700 the search for cycles among them takes a tenth of a
compilation.
"""


def main() -> int:
    """Run the command line; the entry point of the installed command.

    `python -m` puts the current folder on the import path, where modules are not ours.
    """
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    from firmwright.base.import_path import trusted_import_path

    sys.path[:] = trusted_import_path()
    from firmwright.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
