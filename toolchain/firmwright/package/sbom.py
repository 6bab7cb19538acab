"""What a firmware project consists of, as a CycloneDX bill of materials.

In: a project's facts and the hashes of its files. Out: CycloneDX 1.6 as plain JSON values.
It is a function of what it is given: the serial number is made of the content, components are in
order, and the time stands in it only where it is given. Versions that nobody knows are left out.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from firmwright.base.version import VERSION

SPEC_VERSION: Final = "1.6"
RUNTIME_LICENCE: Final = "Apache-2.0"
_LIBRARIES: Final = {
    "--specs=nano.specs": ("newlib-nano", "libgcc"),
    "--specs=picolibc.specs": ("picolibc", "libgcc"),
}
"""What the toolchain links into an image, by the flag that chooses it."""
_ROOT: Final = "firmware"
_TOOL: Final = "firmwright"


@dataclass(frozen=True, slots=True)
class SbomInput:
    """A project's folder as it is read; hashes are SHA-256 in hex, by relative path.

    `image` is the hash of the release that was built, and `built_by` what its compiler says of
    itself; "" where there is none.
    """

    board: str
    core: str
    models: Sequence[Mapping[str, Any]]
    library_flags: Sequence[str]
    files: Mapping[str, str]
    image: str = ""
    built_by: str = ""


def build_sbom(project: SbomInput, epoch_s: int | None = None) -> dict[str, Any]:
    """The document; `epoch_s` is the time that it is to state, in seconds since 1970."""
    components = [
        *_models(project),
        *_folders(project),
        *_libraries(project),
        _compiler(project),
    ]
    body: dict[str, Any] = {
        "metadata": {
            "tools": {"components": [_component("application", _TOOL, "tool", VERSION)]},
            "component": _firmware(project),
            "properties": _properties(board=project.board, core=project.core),
        },
        "components": components,
        "dependencies": [
            {"ref": _ROOT, "dependsOn": [item["bom-ref"] for item in components]},
            *({"ref": item["bom-ref"]} for item in components),
        ],
    }
    if epoch_s is not None:
        body["metadata"]["timestamp"] = datetime.fromtimestamp(epoch_s, UTC).isoformat()
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": uuid.UUID(bytes=digest[:16], version=4).urn,
        "version": 1,
        **body,
    }


def _firmware(project: SbomInput) -> dict[str, Any]:
    names = "-".join(str(model["model"]) for model in project.models)
    version = "-".join(str(model["model_id"]) for model in project.models)
    made = _component("firmware", names, _ROOT, version)
    return made | ({"hashes": _hashes(project.image)} if project.image else {})


def _models(project: SbomInput) -> Iterable[dict[str, Any]]:
    """The models: the files that they were read from, and the C that they became."""
    for facts in project.models:
        name = str(facts["model"])
        files = [path for path in project.files if path.startswith(f"model/{name}")]
        made = _component("machine-learning-model", name, f"model:{name}", str(facts["model_id"]))
        source = facts.get("source_sha256")
        yield made | {
            **({"hashes": _hashes(str(source))} if source else {}),
            "properties": _properties(numerics=facts["numerics"]),
            "components": _files(project, files),
        }


def _folders(project: SbomInput) -> Iterable[dict[str, Any]]:
    """The runtime, the C of each backend, and what stands around them."""
    of_models = tuple(f"model/{facts['model']}" for facts in project.models)
    backends = sorted({path.split("/")[1] for path in project.files if path.startswith("backend/")})
    taken = ("runtime/", "backend/", *of_models)
    runtime = [path for path in project.files if path.startswith("runtime/")]
    if runtime:
        made = _component("library", "firmwright-runtime", "runtime", VERSION)
        licence = {"licenses": [{"license": {"id": RUNTIME_LICENCE}}]}
        yield {**made, **licence, "components": _files(project, runtime)}
    for backend in backends:
        files = [path for path in project.files if path.startswith(f"backend/{backend}/")]
        made = _component("library", backend, f"backend:{backend}")
        yield {**made, "components": _files(project, files)}
    rest = [path for path in project.files if not path.startswith(taken)]
    made = _component("application", "glue-and-build", "glue", VERSION)
    yield {**made, "components": _files(project, rest)}


def _libraries(project: SbomInput) -> Iterable[dict[str, Any]]:
    """What comes out of the toolchain into the image; its versions are the toolchain's."""
    for flag in project.library_flags:
        for name in _LIBRARIES.get(flag, ()):
            yield _component("library", name, f"toolchain:{name}")


def _compiler(project: SbomInput) -> dict[str, Any]:
    """What the sources are tuned for and, of a built image, what compiled it."""
    tuned = project.models[0].get("compiler") or {}
    made = _component("application", str(tuned.get("tool") or "gcc"), "compiler")
    facts = {"tuned_for": " ".join(tuned.get("flags", ())), "built_by": project.built_by}
    return {**made, "scope": "excluded", "properties": _properties(**facts)}


def _component(kind: str, name: str, ref: str, version: str = "") -> dict[str, Any]:
    made = {"type": kind, "bom-ref": ref, "name": name}
    return made | ({"version": version} if version else {})


def _files(project: SbomInput, paths: Iterable[str]) -> list[dict[str, Any]]:
    return [
        {**_component("file", path, f"file:{path}"), "hashes": _hashes(project.files[path])}
        for path in sorted(paths)
    ]


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]


def _properties(**facts: object) -> list[dict[str, str]]:
    named = ((name, str(value)) for name, value in facts.items() if value)
    return [{"name": f"firmwright:{name}", "value": value} for name, value in named]
