"""Entry points of installed packages."""

from importlib import metadata


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group, sorted by name and value."""
    return sorted(metadata.entry_points(group=group), key=lambda point: (point.name, point.value))
