"""Export of models as a package for another build system, in a format of an extension.

The formats are found by name, in the tables `EXPORT_FORMATS` of extensions. The core
has what all packages share: license, README, the model's tests, and the templates of
examples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from firmwright.artifacts import MARKER, SourceTree
from firmwright.base.errors import UsageError
from firmwright.base.extensions import merge_tables
from firmwright.base.templates import template_environment
from firmwright.package.export_input import ExportInput, PackageTests
from firmwright.package.template_values import template_values

Content = dict[str, str | bytes]
"""The files of a package by their paths."""
_CORE = "firmwright.package"


@dataclass(frozen=True, slots=True)
class Archive:
    """A package that is a single file: its usual name, and its packing function.

    The name may contain {name}, {version} and {vendor}.
    """

    file_name: str
    pack: Callable[[SourceTree], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat(ABC):
    """A form of packages.

    `package` is the Python package whose folder templates/ has a section for the README
    of the exported package, usage/NAME.md.j2. Its templates can include those of the
    core, example.c.j2 for instance. Packages are folders unless `archive` is given.
    """

    name: str
    package: str
    archive: Archive | None = None
    takes_tests: bool = True
    takes_several_models: bool = True

    @abstractmethod
    def make_files(self, exported: ExportInput) -> Content:
        """Return the files of a package, without license, README and tests.

        Raise UsageError if the format has no place for a file or its flags.
        """

    @property
    def template_packages(self) -> tuple[str, ...]:
        """The packages with templates; the first with a template of a path counts."""
        return (self.package, _CORE)

    @property
    def sources_folder(self) -> str:
        """The folder of the model's C, which the package's tests compile, or ""."""
        return ""

    @property
    def is_flexible(self) -> bool:
        """Whether there is a place for compiled files and for flags of single files."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFormat(ExportFormat):
    """A format with the model's C in `folder`, amid the files of templates/NAME.

    NAME in the paths of the templates is the name of the exported package, VENDOR its
    owner's. `overrides` is a Python package with templates of the same paths that are
    used instead. `sets_flags` says whether a file or library can have compiler flags of
    its own, and `links_objects` whether object files and archives can be linked besides
    sources.
    """

    folder: str
    overrides: str = ""
    sets_flags: bool = True
    links_objects: bool = True

    @property
    def template_packages(self) -> tuple[str, ...]:
        first = (self.overrides,) if self.overrides else ()
        return (*first, self.package, _CORE)

    @property
    def sources_folder(self) -> str:
        return self.folder

    @property
    def is_flexible(self) -> bool:
        return self.sets_flags and self.links_objects

    def make_files(self, exported: ExportInput) -> Content:
        self._check_linkable(exported)
        content = _render_templates(self.package, self.name, self, exported)
        for file in exported.files:
            content[f"{self.folder}/{file.name}"] = file.data
        content[MARKER] = exported.tree.files[MARKER]
        return content

    def _check_linkable(self, exported: ExportInput) -> None:
        """Raise UsageError if there is no place for flags or objects of files."""
        flagged = next((file for file in exported.files if file.flags), None)
        if flagged is not None and not self.sets_flags:
            needed = f"{flagged.path} needs the flags {' '.join(flagged.flags)}"
            what = f"{needed}; {self.name} cannot set them."
            raise UsageError(what, where="export", hint=_flexible_formats())
        compiled = next((file for file in exported.files if file.is_object), None)
        if compiled is not None and not self.links_objects:
            found = f"{compiled.path} is compiled already"
            what = f"{found}; {self.name} links sources only."
            raise UsageError(what, where="export", hint=_flexible_formats())


def export_formats() -> Mapping[str, ExportFormat]:
    """Return the formats of all extensions by name."""
    return merge_tables(
        None, "EXPORT_FORMATS", lambda extension: extension.export_formats
    )


def find_export_format(name: str) -> ExportFormat:
    formats = export_formats()
    if name not in formats:
        what = f"there is no export format {name!r}."
        raise UsageError(what, hint=f"one of {', '.join(formats)}." if formats else "")
    return formats[name]


def _flexible_formats() -> str:
    """Return the part of a hint that names the formats with a place for all files."""
    names = [form.name for form in export_formats().values() if form.is_flexible]
    first, last = ", ".join(names[:-1]), "".join(names[-1:])
    listed = f"{first} or {last}" if first else last
    return f"--format {listed}."


def export_package(
    exported: ExportInput, form: ExportFormat, tests: PackageTests | None
) -> SourceTree:
    """Return the package, with `tests` if they are given."""
    content = _render_templates(_CORE, "every-package", form, exported)
    content["LICENSE"] = exported.metadata.license_text or content["LICENSE"]
    content |= form.make_files(exported)
    if tests is not None:
        more = {"model_file": tests.model_file, "options": tests.options}
        content |= _render_templates(_CORE, "with-tests", form, exported, more)
        content[f"tests/{tests.model_file}"] = tests.model
        content["tests/known_answers.npz"] = tests.known_answers
    return SourceTree(content)


def describe_usage(exported: ExportInput, form: ExportFormat, place: str) -> str:
    """Return how a build uses the package in the folder or file `place`."""
    environment = template_environment(*form.template_packages)
    values = {
        "form": form.name,
        "folder": form.sources_folder,
        **template_values(exported),
        "place": place,
    }
    template = environment.get_template(f"usage/{form.name}.md.j2")
    return template.render(values).strip()


def package_path(exported: ExportInput, form: ExportFormat) -> str:
    """Return the usual name of a package: of its folder, or of its file."""
    facts = exported.metadata
    pattern = form.archive.file_name if form.archive else "{name}"
    version, vendor = facts.version, facts.vendor
    return pattern.format(name=exported.name, version=version, vendor=vendor)


def _render_templates(
    home: str,
    folder: str,
    form: ExportFormat,
    exported: ExportInput,
    more: Mapping[str, object] | None = None,
) -> Content:
    """Return the files of a folder of templates; NAME and VENDOR are replaced.

    Both are parts of the paths.

    `home` is the package that has the folder. `more` are further names that the
    templates know.
    """
    values = {
        "form": form.name,
        "folder": form.sources_folder,
        **template_values(exported),
        **(more or {}),
    }
    environment = template_environment(*form.template_packages)
    content: Content = {}
    for path in _paths(files(home) / "templates" / folder, ""):
        text = environment.get_template(f"{folder}/{path}").render(values)
        path = path.replace("VENDOR", exported.metadata.vendor)
        content[path.removesuffix(".j2").replace("NAME", exported.name)] = text
    return content


def _paths(folder: Traversable, above: str) -> Iterator[str]:
    """Yield the templates in a folder and below it as paths that start with `above`."""
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            yield from _paths(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(".j2"):
            yield above + entry.name
