"""`firmwright sbom`: write the SBOM of a project's firmware (CycloneDX)."""

import argparse
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from firmwright.artifacts import MARKER
from firmwright.base.errors import UsageError
from firmwright.base.json_input import Json, as_list, as_text, as_texts
from firmwright.base.source_date import source_date_s
from firmwright.build.board_facts import read_board_facts
from firmwright.cli.verb import Outcome
from firmwright.extensions.sbom.cyclonedx import SbomInput, build_sbom
from firmwright.extensions.sbom.toolchain_libraries import find_toolchain
from firmwright.flows.model.model import write_file
from firmwright.package.metadata_reader import facts_of_models, read_metadata


def run(args: argparse.Namespace) -> Outcome:
    bill = project_sbom(Path(args.folder), os.environ)
    text = json.dumps(bill, indent=2)
    if not args.output:
        return Outcome({"bom": bill}, text)
    write_file(args.output, f"{text}\n".encode())
    count = len(as_list(bill["components"]))
    message = f"{args.output}: CycloneDX {bill['specVersion']}, {count} components."
    return Outcome({"bom": bill, "file": args.output}, message)


_FOLDERS: Final = ("backend", "board", "firmware", "model", "runtime")
_USED_FACTS: Final = ("model", "model_id", "source_sha256", "numerics", "compiler")
_TOP_LEVEL_FILES: Final = ("SConstruct", MARKER)
_HEAD_BYTES: Final = 1024
_LICENSE_TAG: Final = re.compile(rb"SPDX-License-Identifier: ([A-Za-z0-9.+() -]+)")
_COMPILERS: Final = re.compile(
    rb"(GCC: \([^)\0]*\) [\w.]+|(?:\w+ )?clang version [\w.]+)"
)


def project_sbom(folder: Path, environment: Mapping[str, str]) -> dict[str, Json]:
    """Return the SBOM, with the time of SOURCE_DATE_EPOCH if that is set."""
    metadata, board = folder / MARKER, folder / "board" / "board.json"
    if not metadata.is_file() or not board.is_file():
        hint = "run firmwright compile MODEL --board B -o DIR, then sbom DIR."
        raise UsageError("this is not a project folder.", where=str(folder), hint=hint)
    facts, about = read_metadata(folder, _USED_FACTS), read_board_facts(folder)
    elf = folder / "build" / "release" / "firmware.elf"
    image = elf.read_bytes() if elf.is_file() else b""
    compiler_match = _COMPILERS.search(image)
    built_by = compiler_match[1].decode("ascii", "replace") if compiler_match else ""
    files = _read_files(folder)
    project = SbomInput(
        board=as_text(about["name"]),
        core=as_text(about["core"]),
        models=facts_of_models(facts),
        toolchain=find_toolchain(
            as_text(about["toolchain"]),
            as_texts(about["library_flags"]),
            as_texts(about["compile_flags"]),
            built_by,
        ),
        files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        licenses=_licenses(files),
        image=hashlib.sha256(image).hexdigest() if image else "",
        built_by=built_by,
    )
    return build_sbom(project, source_date_s(environment))


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the project's files by their paths in the folder."""
    paths = [folder / name for name in _TOP_LEVEL_FILES]
    for place in _FOLDERS:
        paths += (folder / place).rglob("*")
    files: dict[str, bytes] = {}
    for path in sorted(paths):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def _licenses(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SPDX expressions that the heads of files state."""
    licenses: dict[str, str] = {}
    for name, data in files.items():
        if stated := _LICENSE_TAG.search(data[:_HEAD_BYTES]):
            licenses[name] = stated[1].decode("ascii").strip()
    return licenses
