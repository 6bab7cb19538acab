"""`python -m firmwright VERB`: the same as `firmwright VERB`."""

import sys


def main() -> int:
    """Run the command line; the entry point of the installed command."""
    from firmwright.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
