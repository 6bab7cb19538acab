"""Boot loaders of extensions, to which `flash` sends updates."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firmwright.base.errors import UsageError
from firmwright.base.extensions import merge_tables
from firmwright.cli.verb import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BootLoader:
    """A boot loader that starts images of a form of its own, such as signed ones.

    `flash` sends an update for `flash --runner NAME`; it gets the arguments of the
    verb. `flash_options` are the options that the extension adds to `flash`, which need
    this runner.
    """

    flash: Callable[[argparse.Namespace], Outcome]
    flash_options: tuple[str, ...] = ()


def boot_loaders() -> Mapping[str, BootLoader]:
    """Return the boot loaders of all extensions by name."""
    return merge_tables(None, "BOOT_LOADERS", lambda extension: extension.boot_loaders)


def check_flash_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option of a boot loader that is not the runner."""
    for name, loader in boot_loaders().items():
        for option in loader.flash_options:
            if args.runner != name and getattr(args, option.replace("-", "_")):
                needs = f"--{option} needs --runner {name}"
                what = f"{needs}; other tools replace the firmware at once."
                raise UsageError(what, where="flash", hint=f"omit --{option}.")
