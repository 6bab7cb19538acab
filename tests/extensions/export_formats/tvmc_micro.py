"""Run `tvmc micro` of a checkout of TVM without its compiled library.

python tvmc_micro.py CHECKOUT ARGUMENT...

The modules of the command and of its project API are TVM's own; only packages whose
import needs the library, and names that the command does not use, are substitutes.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
from pathlib import Path

CRT_FOLDER = "the-standalone-crt-of-TVM"


def substitute(name: str, folder: Path | None = None, **content: object) -> None:
    module = types.ModuleType(name)
    if folder is not None:
        module.__path__ = [str(folder)]
    vars(module).update(content)
    sys.modules[name] = module


def prepare(checkout: Path) -> None:
    """Register packages that import TVM's modules one by one."""
    source = checkout / "python" / "tvm"
    substitute("tvm", source, __version__="0.14.0")
    templates = {"get_microtvm_template_projects": no_template}
    substitute("tvm.micro", source / "micro", **templates)
    substitute("tvm.contrib", source / "contrib")
    substitute("tvm.driver", source / "driver")
    error = type("TVMCException", (Exception,), {})
    substitute("tvm.driver.tvmc", source / "driver" / "tvmc", TVMCException=error)
    substitute("tvm.driver.tvmc.main", register_parser=lambda parser: parser)
    substitute(
        "tvm.micro.build",
        MicroTVMTemplateProjectNotFoundError=LookupError,
        get_standalone_crt_dir=lambda: CRT_FOLDER,
    )
    names = ("ExportableModule", "export_model_library_format")
    substitute("tvm.micro.model_library_format", **dict.fromkeys(names))


def no_template(platform: str) -> str:
    raise LookupError(platform)


def main() -> None:
    prepare(Path(sys.argv.pop(1)))
    micro = importlib.import_module("tvm.driver.tvmc.micro")
    parser = argparse.ArgumentParser(prog="tvmc")
    micro.add_micro_parser(parser.add_subparsers(dest="command"), parser, [])
    arguments = parser.parse_args()
    arguments.func(arguments)


if __name__ == "__main__":
    main()
