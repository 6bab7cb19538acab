"""Fixtures of the tests of extensions, which are those of the tests of the core."""

from tests.acceptance.conftest import compiled, digits, model_file, python, quickly
from tests.unit.partitioning.conftest import no_backends

__all__ = ["compiled", "digits", "model_file", "no_backends", "python", "quickly"]
