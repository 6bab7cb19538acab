"""Names of outputs whose length depends on the data, and of those that count elements.

An output NAME of its greatest length is followed by an output NAME_count with the
number of its elements in use.
"""

from collections.abc import Sequence


def count_name(name: str) -> str:
    """Return the name of the output that counts the elements of the output `name`."""
    return f"{name}_count"


def without_counts(names: Sequence[str]) -> list[str]:
    """Return the names of outputs without those that count other outputs."""
    counts = {count_name(name) for name in names}
    return [name for name in names if name not in counts]
