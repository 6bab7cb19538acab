"""C text for the files of backends."""

from collections.abc import Sequence

LINE_COLUMNS = 100
"""Maximum length of a line of generated C."""


def c_function_head(start: str, params: Sequence[str]) -> str:
    """Return a function head with line breaks between parameters."""
    lines = [start]
    for index, param in enumerate(params):
        word = param + (", " if index + 1 < len(params) else ")")
        if len(lines[-1]) + len(word.rstrip()) > LINE_COLUMNS:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += word
    return "\n".join(lines)
