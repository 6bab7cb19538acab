"""What packages contain: parts of a compilation, and facts about the package."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import to_model_identifier
from firmwright.base.errors import UsageError
from firmwright.compilation_summary import BundleSummary, CompilationSummary
from firmwright.package.package_files import PackageFile, collect_package_files

_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_URL = re.compile(r"https?://[!-~]+")


@dataclass(frozen=True, slots=True)
class PackageMetadata:
    """Name, version and owner of a package; invalid ones raise UsageError.

    An empty `name` means the model's name. `license` is an SPDX expression;
    `license_text`, by default that expression, is the contents of LICENSE.
    """

    name: str = ""
    version: str = "0.0.0"
    maintainer: str = "Model Owner"
    url: str = ""
    license: str = ""
    license_text: str = ""

    def __post_init__(self) -> None:
        identifier = to_model_identifier(self.name)
        if self.name not in ("", identifier):
            raise _invalid("package-name", self.name, f"such as {identifier}.")
        if not _VERSION.fullmatch(self.version):
            raise _invalid("package-version", self.version, "such as 1.4.0.")
        if not self.maintainer.isprintable() or not self.vendor:
            hint = "such as 'Ada Co <ml@ada.example>'."
            raise _invalid("maintainer", self.maintainer, hint)
        if self.url and not _URL.fullmatch(self.url):
            raise _invalid("url", self.url, "an https:// address.")

    @property
    def vendor(self) -> str:
        """The maintainer's name with the characters that a CMSIS pack permits."""
        name, _, _ = self.maintainer.partition("<")
        return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")


def _invalid(option: str, value: str, hint: str) -> UsageError:
    return UsageError(f"invalid --{option} {value!r}.", hint=hint)


NO_METADATA = PackageMetadata()


@dataclass(frozen=True, slots=True)
class ExportInput:
    """The parts of a compilation that packages contain.

    `text` is the module for the Model Library Format; `devices` are the devices that a
    run uses, with the functions that wait for them.
    """

    tree: SourceTree
    summary: CompilationSummary | BundleSummary
    metadata: PackageMetadata
    text: str = ""
    devices: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> tuple[CompilationSummary, ...]:
        """The models in the order of their runs."""
        summary = self.summary
        if isinstance(summary, CompilationSummary):
            return (summary,)
        order = summary.run_order
        return tuple(sorted(summary.models, key=lambda model: order.index(model.model)))

    @property
    def name(self) -> str:
        names = (to_model_identifier(model.model) for model in self.models)
        return self.metadata.name or "_".join(names)

    @property
    def files(self) -> tuple[PackageFile, ...]:
        return collect_package_files(self.tree)


@dataclass(frozen=True, slots=True)
class PackageTests:
    """Data for a package's own tests: model file, known answers, and options."""

    model_file: str
    model: bytes
    known_answers: bytes
    options: tuple[str, ...]
