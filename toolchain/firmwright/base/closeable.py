"""The base class of resources that a `with` block closes, such as ports."""

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """A context manager that returns itself and calls `close` at the end."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release the resource."""
