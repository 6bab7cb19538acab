"""The PyTorch frontend: `import_pytorch` converts a program saved by torch.export to a module."""

from firmwright.frontends.pytorch.archive import is_pytorch
from firmwright.frontends.pytorch.importer import import_pytorch

__all__ = ["import_pytorch", "is_pytorch"]
