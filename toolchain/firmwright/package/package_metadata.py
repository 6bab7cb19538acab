"""The facts about a package that its owner gives to package managers."""

import re
from dataclasses import dataclass

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import UsageError

_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_URL = re.compile(r"https?://[!-~]+")


@dataclass(frozen=True, slots=True)
class PackageMetadata:
    """Name, version and owner of a package; invalid ones raise UsageError.

    An empty `name` means the model's name. `license` is an SPDX expression; `license_text`, by
    default that expression, is the contents of LICENSE.
    """

    name: str = ""
    version: str = "0.0.0"
    maintainer: str = "Model Owner"
    url: str = ""
    license: str = ""
    license_text: str = ""

    def __post_init__(self) -> None:
        identifier = to_c_identifier(self.name)
        owner = self.maintainer if self.maintainer.isprintable() and self.vendor else ""
        for option, value, is_valid, hint in (
            ("package-name", self.name, self.name in ("", identifier), f"such as {identifier}."),
            ("package-version", self.version, _VERSION.fullmatch(self.version), "such as 1.4.0."),
            ("maintainer", self.maintainer, owner, "such as 'Ada Co <ml@ada.example>'."),
            ("url", self.url, not self.url or _URL.fullmatch(self.url), "an https:// address."),
        ):
            if not is_valid:
                raise UsageError(f"invalid --{option} {value!r}.", hint=hint)

    @property
    def vendor(self) -> str:
        """The maintainer's name with the characters that a CMSIS pack permits."""
        return re.sub(r"[^A-Za-z0-9_]+", "-", self.maintainer.partition("<")[0]).strip("-")


NO_METADATA = PackageMetadata()
