"""SCons tool that compiles models and builds firmware within a user's build.

    env = Environment(tools=["default", "fw_model"], toolpath=[TOOLPATH])
    sources = env.FirmwrightModel("out/kws", "kws.tflite", board="mps2-an386")
    firmware = env.FirmwrightFirmware("out/kws", sources)

FirmwrightModel returns nodes: the model's C file, its headers, the glue and
metadata.json; FirmwrightFirmware the ELF. Generated files depend on the model, the
options, this package, the runtime and the boards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from SCons.Script import Action

if TYPE_CHECKING:
    from SCons.Environment import Base as Environment
    from SCons.Node import NodeList

_SOURCE_ROOT = str(Path(__file__).resolve().parents[2])
if (
    _SOURCE_ROOT not in sys.path
):  # SCons loads this file by its path, without the package
    sys.path.insert(0, _SOURCE_ROOT)

from firmwright import pipeline  # noqa: E402 - needs the path above
from firmwright.artifacts import MARKER  # noqa: E402
from firmwright.base.c_identifiers import to_model_identifier  # noqa: E402
from firmwright.base.errors import FirmwrightError  # noqa: E402
from firmwright.base.resources import boards_dir, runtime_dir  # noqa: E402
from firmwright.build import build_project  # noqa: E402


def generate(env: Environment) -> None:
    """Add the two methods to `env`; called by SCons."""
    env.AddMethod(_firmwright_model, "FirmwrightModel")
    env.AddMethod(_firmwright_firmware, "FirmwrightFirmware")


def exists(env: Environment) -> bool:
    return True


def _firmwright_model(
    env: Environment, directory: str, model: str, **options: object
) -> NodeList:
    name = options.setdefault("name", to_model_identifier(Path(str(model)).stem))
    files = (f"model/{name}.c", f"model/{name}.h", "firmware/fwr_app.c", MARKER)
    nodes = env.Command(
        [f"{directory}/{file}" for file in files],
        [model, env.Value(repr(sorted(options.items())))],
        Action(_compile, "firmwright compile $SOURCE -o $FIRMWRIGHT_DIRECTORY"),
        FIRMWRIGHT_DIRECTORY=env.Dir(directory),
        FIRMWRIGHT_OPTIONS=options,
    )
    env.Precious(
        nodes
    )  # without metadata.json the folder would not be recognized as a project
    env.Depends(nodes, [env.File(str(file)) for file in _generator_files()])
    return nodes


def _firmwright_firmware(
    env: Environment, directory: str, sources: NodeList, variant: str = "release"
) -> NodeList:
    elf = env.Command(
        f"{directory}/build/{variant}/firmware.elf",
        sources,
        Action(_build, "firmwright build $FIRMWRIGHT_DIRECTORY"),
        FIRMWRIGHT_DIRECTORY=env.Dir(directory),
        FIRMWRIGHT_VARIANT=variant,
    )
    env.Precious(elf)
    return elf


def _generator_files() -> list[Path]:
    package = Path(pipeline.__file__).parents[1]
    texts = [
        *package.rglob("*.c.in"),
        *package.rglob("*.txt"),
        *package.glob("*/templates/*"),
    ]
    files = [*package.rglob("*.py"), *texts]
    files += [*runtime_dir().rglob("*.[ch]"), *boards_dir().rglob("*.toml")]
    return sorted(file for file in files if file.is_file())


def _compile(target: NodeList, source: NodeList, env: Environment) -> int:
    directory = Path(env["FIRMWRIGHT_DIRECTORY"].get_abspath())
    options = pipeline.Options(**env["FIRMWRIGHT_OPTIONS"])
    _remove_empty_folders(directory)
    try:
        module = pipeline.load_module(source[0].get_abspath(), name=options.name)
        pipeline.compile_model(module, options).save(directory)
    except FirmwrightError as error:
        return _failed(error)
    return 0


def _remove_empty_folders(directory: Path) -> None:
    """Remove the folders that SCons made for its targets."""
    for name in ("model", "firmware"):
        folder = directory / name
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _build(target: NodeList, source: NodeList, env: Environment) -> int:
    directory = Path(env["FIRMWRIGHT_DIRECTORY"].get_abspath())
    try:
        image = build_project(directory, env["FIRMWRIGHT_VARIANT"])
    except FirmwrightError as error:
        return _failed(error)
    sizes = f"flash {image.sizes.flash_bytes} ram {image.sizes.ram_bytes}"
    sys.stdout.write(f"{image.board}: {sizes} stack {image.firmware_stack}\n")
    return 0


def _failed(error: FirmwrightError) -> int:
    sys.stderr.write(f"firmwright: {error}\n")
    return error.exit_code
