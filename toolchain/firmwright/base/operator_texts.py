"""Texts about operators in files next to modules: reasons, replacements, remedies.

A section of `MODULE.txt` has one text a line, and the operators' names after a colon.
"""

from collections.abc import Mapping

from firmwright.base.text_sections import read_sections


def read_operator_texts(module: str, section: str) -> Mapping[str, str]:
    """Return the text of each operator in the file of a module (`__file__`)."""
    texts: dict[str, str] = {}
    for row in read_sections(module, ".txt")[section].splitlines():
        text, _, names = row.rpartition(": ")
        texts |= dict.fromkeys(names.split(), text)
    return texts
