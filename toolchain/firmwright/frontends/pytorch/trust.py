"""What a PyTorch program must not contain, as `torch.export.load` would execute it.

This reader executes nothing, but the oracle hands the same file to PyTorch. PyTorch
resolves an operator's name by attributes of its modules, evaluates expressions of sizes
as Python, and unpickles some members. It looks members up without regard to case.
"""

import re
from collections.abc import Iterable
from typing import Final

from firmwright.base.errors import ModelError
from firmwright.base.json_input import Json

_MEMBERS: Final = re.compile(
    r"models/\w+\.json|data/(weights|constants)/\w+_(weights|constants)_config\.json|"
    r"data/weights/(?!.*\.pt$)[\w.]+|data/constants/tensor_\d+|data/sample_inputs/\w+\.pt|"
    r"archive_format|archive_version|byteorder|version|\.data/\w+|extra/.*"
)
_TARGET: Final = re.compile(
    r"torch\.ops\.[a-zA-Z]\w*\.([a-zA-Z]\w*|_[a-z]\w*|__i?(and|or|xor|lshift|rshift)__)"
    r"(\.[a-zA-Z]\w*)?|torch\.sym_[a-z]+|math\.[a-z0-9]+|"
    r"_operator\.(?!call$|\w*getter$|methodcaller$)[a-z_]+|(?!torch|math|_operator|#).*"
)
_EXPRESSION: Final = re.compile(
    r"(Symbol\('[su]\d+'(, [a-z]+=True)*\)|[su]\d+|[A-Z][A-Za-z]*|\d+|[-+*/%(), <>=])*"
)
"""Arithmetic of symbols, and calls of functions of sizes, such as Max(1, s0)."""


def check_members(names: Iterable[str], file: str) -> None:
    """Raise ModelError for members that PyTorch would unpickle or take for ours."""
    seen = set()
    for name in names:
        if name.lower() in seen:
            raise ModelError.broken(f"it has two files {name!r}.", file)
        seen.add(name.lower())
        if not _MEMBERS.fullmatch(name):
            what = (
                f"the archive has a file of an unknown kind, {name!r}, which may hold "
                "code."
            )
            hint = (
                "save the program again by torch.export.save, without further content."
            )
            raise ModelError(what, where=file, hint=hint)


def check_program(root: Json, file: str) -> None:
    """Raise ModelError for names and expressions beyond operators and arithmetic."""
    waiting: list[Json] = [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        if not isinstance(item, dict):
            continue
        waiting += item.values()
        for key, pattern in (("target", _TARGET), ("expr_str", _EXPRESSION)):
            text = item.get(key, "")
            if isinstance(text, str) and not pattern.fullmatch(text):
                what = (
                    f"the program names {text[:60]!r}, which is not an operator or a "
                    "size."
                )
                hint = "save the program again by torch.export.save."
                raise ModelError(what, where=file, hint=hint)
