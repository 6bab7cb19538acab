"""The PyTorch frontend: `import_pytorch` converts a program of torch.export."""

from typing import TYPE_CHECKING

from firmwright.base.package_modules import export_on_use

if TYPE_CHECKING:
    from firmwright.frontends.pytorch.archive import is_pytorch as is_pytorch
    from firmwright.frontends.pytorch.importer import import_pytorch as import_pytorch
    from firmwright.frontends.pytorch.importer import (
        translate_program as translate_program,
    )
    from firmwright.frontends.pytorch.program import read_program as read_program
    from firmwright.frontends.pytorch.sized_program import (
        declared_overrides as declared_overrides,
    )

__getattr__ = export_on_use(
    __name__,
    {
        "archive": ["is_pytorch"],
        "importer": ["import_pytorch", "translate_program"],
        "program": ["read_program"],
        "sized_program": ["declared_overrides"],
    },
)
