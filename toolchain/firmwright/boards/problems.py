"""Collects the errors of a board file, so that one reading reports all of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from firmwright.base.errors import BoardError, BoardFileError


class UnknownKeyError(BoardError):
    """An unknown key; `meant` is the path of the known key that it resembles, or ""."""

    def __init__(self, *, where: str, hint: str, meant: str) -> None:
        super().__init__("unknown key.", where=where, hint=hint)
        self.meant = meant


class Problems:
    """The errors of the parts of a file that were read so far."""

    def __init__(self) -> None:
        self._errors: dict[str, BoardError] = {}

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Record the BoardError of the block instead of raising it."""
        try:
            yield
        except BoardFileError as several:
            for error in several.errors:
                self.add(error)
        except BoardError as error:
            self.add(error)

    def add(self, error: BoardError) -> None:
        self._errors.setdefault(str(error), error)

    @contextmanager
    def report(self) -> Iterator[None]:
        """Record the block's BoardError as well, and raise all of them at its end."""
        with self.collect():
            yield
        self.raise_any()

    def raise_any(self) -> None:
        """Raise the recorded errors, if any; a misspelled key is not missing, too."""
        errors = tuple(self._errors.values())
        meant: set[str] = set()
        for error in errors:
            if isinstance(error, UnknownKeyError):
                meant.add(error.meant)
        kept = [e for e in errors if e.where.rpartition(":")[2] not in meant]
        if len(kept) == 1:
            raise kept[0]
        if kept:
            raise BoardFileError(kept)
