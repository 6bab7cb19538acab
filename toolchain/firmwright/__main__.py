"""`python -m firmwright VERB`: the same as `firmwright VERB`."""

import sys


def main() -> int:
    """Run the command line; the entry point of the installed command.

    `python -m` puts the current folder on the import path, where modules are not ours.
    """
    from firmwright.base.import_path import trusted_import_path

    sys.path[:] = trusted_import_path()
    from firmwright.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
