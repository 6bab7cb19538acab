"""The smallest model, `twice`, and projects made from it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree

TWICE = Path(__file__).parent / "twice"
MULTIPLY = "    multiply(inputs->input_1, outputs->output_1);\n"


@pytest.fixture(scope="session")
def twice() -> Callable[..., SourceTree]:
    """`twice()` is the model's tree; `twice(before)` runs C statements first."""

    def tree(before: str = "") -> SourceTree:
        files: dict[str, str | bytes] = {
            file.relative_to(TWICE).as_posix(): file.read_text(encoding="utf-8")
            for file in sorted(TWICE.rglob("*.[ch]"))
        }
        source = str(files["model/twice.c"])
        assert MULTIPLY in source
        files["model/twice.c"] = source.replace(MULTIPLY, before + MULTIPLY)
        return SourceTree(files)

    return tree
