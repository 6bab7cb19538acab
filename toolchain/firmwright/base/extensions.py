"""Extensions: packages that add to the compiler, and the doors to find them.

An extension is an entry point in the group `firmwright.extensions`, with an `Extension`
as its value. Those in `firmwright/extensions` are registered in the same way, and the
core imports none of them by name. Kinds with a group of their own, such as
`firmwright.backends`, are found there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from firmwright.base.errors import PluginError
from firmwright.base.package_modules import package_modules
from firmwright.base.plugin_calls import entry_points, load_entry_point, plugin_call

ENTRY_POINT_GROUP = "firmwright.extensions"
ModuleNames: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What an extension adds: for each door, the names of modules that define it.

    A module is imported when its door is first used, so the module of an `Extension`
    itself should import nothing else. All of an extension's modules may define several
    things.
    """

    name: str
    """The name of the entry point."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """MODULE.CLASS, a subclass of `OpAttrs` -> its operators, separated by spaces."""
    operators: ModuleNames = ()
    """Modules with operators, `OPDEF` or `OPDEFS`."""
    conformance_cases: ModuleNames = ()
    """Modules with `CASES`: operator -> lines as in conformance/case_tables.txt."""
    tflite_importers: ModuleNames = ()
    """Modules with `IMPORTERS`: OPERATOR or custom:OPERATOR -> importer of TFLite."""
    tflite_rewrites: ModuleNames = ()
    """Modules with `MODEL_REWRITES` or `FUNCTION_REWRITES`.

    frontends/tflite/rewrites.py describes them.
    """
    onnx_importers: ModuleNames = ()
    """Modules with `IMPORTERS`: OPERATOR or DOMAIN:OPERATOR -> importer of ONNX."""
    pytorch_translators: ModuleNames = ()
    """Modules with `TRANSLATORS`: operator of PyTorch -> translator."""
    schedules: ModuleNames = ()
    """Modules with `SCHEDULES`, `INTRINSICS` or `INTRINSIC_MAKERS`.

    They are tried after those of the core.
    """
    partition_methods: ModuleNames = ()
    """Modules with `PARTITION_METHODS`: value of --partition -> `PartitionMethod`."""
    export_formats: ModuleNames = ()
    """Modules with `EXPORT_FORMATS`: value of export --format -> `ExportFormat`."""
    export_commands: ModuleNames = ()
    """Modules with `EXPORT_COMMANDS`: value of export --format -> function.

    It performs the verb with its arguments, for packages of more than the models. A key
    such as `.json` is a suffix of files that are not models, for other formats.
    """
    firmware_mains: ModuleNames = ()
    """Modules with `FIRMWARE_MAINS`: value of --firmware -> maker of a main program."""
    board_tables: ModuleNames = ()
    """Modules with `BOARD_TABLES`: table of a board file -> function that reads it."""
    boot_loaders: ModuleNames = ()
    """Modules with `BOOT_LOADERS`: value of flash --runner -> `BootLoader`."""
    command_line: ModuleNames = ()
    """Packages with the layout of `firmwright.cli`.

    They have verbs, help.toml and options.txt.
    """
    passed_variables: tuple[str, ...] = ()
    """Environment variables that child processes receive, such as library paths."""
    code_options: tuple[str, ...] = ()
    """Options of its command line that name programs or code.

    `firmwright.toml` needs trust for them.
    """


Door: TypeAlias = Callable[[Extension], Sequence[str]]


def extensions() -> Iterator[Extension]:
    """Yield the installed extensions by name; PluginError for other entry points."""
    for point in entry_points(ENTRY_POINT_GROUP):
        extension = load_entry_point(point)
        if not isinstance(extension, Extension) or extension.name != point.name:
            group = f"the group {ENTRY_POINT_GROUP}"
            what = f"the entry point {point.name} of {group} is not one."
            kind = "firmwright.base.extensions.Extension"
            hint = f"an instance of {kind} with name={point.name!r}."
            raise PluginError(what, where=point.value, hint=hint)
        yield extension


def door_modules(door: Door) -> list[ModuleType]:
    """Return the modules, imported, of all extensions behind a door (`e.operators`)."""
    modules = []
    for extension in extensions():
        for name in door(extension):
            with plugin_call(f"the import of {name} by the extension {extension.name}"):
                modules.append(import_module(name))
    return modules


def merge_tables(
    package: ModuleType | None, table: str, door: Door
) -> Mapping[str, Any]:
    """Merge the tables named `table` of a package's modules and of extensions.

    `package` is None if only extensions have such tables.

    Raises PluginError if two modules define the same key.
    """
    merged: dict[str, Any] = {}
    origins: dict[str, ModuleType] = {}
    own_modules = package_modules(package) if package else []
    for module in (*own_modules, *door_modules(door)):
        for key, value in getattr(module, table, {}).items():
            if key in merged:
                raise defined_twice(f"the entry {key} of {table}", origins[key], module)
            merged[key], origins[key] = value, module
    return merged


def defined_twice(what: str, first: ModuleType, second: ModuleType) -> PluginError:
    both = f"{first.__name__} and {second.__name__}"
    hint = "uninstall the package of one of them, or rename it there."
    return PluginError(f"{what} is defined twice, by {both}.", hint=hint)
