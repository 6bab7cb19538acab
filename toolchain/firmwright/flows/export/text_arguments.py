"""Texts that the user brings as files: a main program of their own, a license."""

from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.package.custom_main import use_custom_main
from firmwright.package.project_writer import write_project
from firmwright.pipeline import Bundle, Compilation


def save_with_main(
    compiled: Compilation | Bundle, main: str | Path, output: str | Path
) -> None:
    text = read_text_argument(main, "main program", "the path of a C file with --main")
    write_project(use_custom_main(compiled.project(), text), Path(output))


def read_text_argument(file: str | Path, subject: str, usage: str) -> str:
    """Return the text of a file that an option names; UsageError if unreadable."""
    try:
        return read_input_text(file)
    except (OSError, UnicodeDecodeError) as error:
        what = f"the {subject} cannot be read: {error}."
        raise UsageError(what, where=str(file), hint=f"give {usage}.") from error
