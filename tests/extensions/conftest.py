"""Fixtures of the tests of extensions, which compile the models of the acceptance tests."""

from tests.acceptance.conftest import compiled, digits, model_file, quickly

__all__ = ["compiled", "digits", "model_file", "quickly"]
