"""The SBOM of a firmware project in CycloneDX 1.6; it depends on the inputs only."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from firmwright.base.json_input import Json, JsonObject, as_object, as_texts
from firmwright.base.version import VERSION
from firmwright.extensions.sbom.toolchain_libraries import License, Toolchain

SPEC_VERSION: Final = "1.6"
_ROOT: Final = "firmware"
"""The reference of the component that depends on all others."""
_TOOL: Final = "firmwright"
Component: TypeAlias = dict[str, Json]


@dataclass(frozen=True, slots=True)
class SbomInput:
    """The contents of a project's folder.

    `files` maps relative paths to SHA-256 in hex, and `licenses` those that state one
    to its SPDX expression. `image` is the hash of the release image and `built_by` its
    compiler's version line, or "".
    """

    board: str
    core: str
    models: Sequence[JsonObject]
    toolchain: Toolchain
    files: Mapping[str, str]
    licenses: Mapping[str, str]
    image: str = ""
    built_by: str = ""


def build_sbom(project: SbomInput, epoch_s: int | None = None) -> dict[str, Json]:
    """Return the document; `epoch_s` is its time stamp in seconds since 1970."""
    components = [
        *_models(project),
        *_folders(project),
        *_libraries(project),
        _compiler(project),
    ]
    metadata: dict[str, Json] = {
        "tools": {"components": [_component("application", _TOOL, "tool", VERSION)]},
        "component": _firmware(project),
        "properties": _properties(board=project.board, core=project.core),
    }
    if epoch_s is not None:
        metadata["timestamp"] = datetime.fromtimestamp(epoch_s, UTC).isoformat()
    refs = [item["bom-ref"] for item in components]
    root: Component = {"ref": _ROOT, "dependsOn": refs}
    body: dict[str, Json] = {
        "metadata": metadata,
        "components": components,
        "dependencies": [root, *({"ref": ref} for ref in refs)],
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": uuid.UUID(bytes=digest[:16], version=4).urn,
        "version": 1,
        **body,
    }


def _firmware(project: SbomInput) -> Component:
    """Return the component of the image, called after all its models."""
    names = "-".join(str(model["model"]) for model in project.models)
    version = "-".join(str(model["model_id"]) for model in project.models)
    component = _component("firmware", names, _ROOT, version)
    if project.image:
        component["hashes"] = _hashes(project.image)
    return component


def _models(project: SbomInput) -> Iterator[Component]:
    """Yield a component for each model, with its C files."""
    for facts in project.models:
        name = str(facts["model"])
        files = _paths_in(project, f"model/{name}")
        version = str(facts["model_id"])
        component = _component("machine-learning-model", name, f"model:{name}", version)
        if facts.get("source_sha256"):
            component["hashes"] = _hashes(str(facts["source_sha256"]))
        component["properties"] = _properties(numerics=facts["numerics"])
        yield component | _contents(project, files)


def _folders(project: SbomInput) -> Iterator[Component]:
    """Yield the runtime library, the backends, and a component of all other files."""
    runtime = _paths_in(project, "runtime/")
    if runtime:
        component = _component("library", "firmwright-runtime", "runtime", VERSION)
        yield component | _contents(project, runtime)
    backends = {path.split("/")[1] for path in _paths_in(project, "backend/")}
    for backend in sorted(backends):
        files = _paths_in(project, f"backend/{backend}/")
        component = _component("library", backend, f"backend:{backend}")
        yield component | _contents(project, files)
    of_models = (f"model/{facts['model']}" for facts in project.models)
    listed = ("runtime/", "backend/", *of_models)
    rest = [path for path in project.files if not path.startswith(listed)]
    component = _component("application", "glue-and-build", "glue", VERSION)
    yield component | _contents(project, rest)


def _paths_in(project: SbomInput, prefix: str) -> list[str]:
    return [path for path in project.files if path.startswith(prefix)]


def _libraries(project: SbomInput) -> Iterator[Component]:
    """Yield the toolchain's libraries that the image contains."""
    for library in project.toolchain.libraries:
        ref = f"toolchain:{library.name}"
        component = _component("library", library.name, ref, library.version)
        component["licenses"] = _licenses(library.license)
        if library.sha256:
            component["hashes"] = _hashes(library.sha256)
        yield component


def _licenses(found: License) -> list[Json]:
    if found.expression:
        return [{"expression": found.expression}]
    return [{"license": {"name": found.name, "url": found.url}}]


def _compiler(project: SbomInput) -> Component:
    """Return the component of the compiler, which is not part of the image."""
    tuned = as_object(project.models[0].get("compiler") or {})
    tool, version = str(tuned.get("tool") or "gcc"), project.toolchain.version
    component = _component("application", tool, "compiler", version)
    flags = as_texts(tuned.get("flags", []))
    properties = _properties(tuned_for=" ".join(flags), built_by=project.built_by)
    return {**component, "scope": "excluded", "properties": properties}


def _component(kind: str, name: str, ref: str, version: str = "") -> Component:
    component: Component = {"type": kind, "bom-ref": ref, "name": name}
    if version:
        component["version"] = version
    return component


def _contents(project: SbomInput, paths: Sequence[str]) -> Component:
    """Return the files of a component, and together the licenses that they state."""
    stated = {project.licenses[path] for path in paths if path in project.licenses}
    fields: Component = {"components": _files(project, paths)}
    if stated:
        fields["licenses"] = _licenses(License(_both(sorted(stated))))
    return fields


def _both(expressions: Sequence[str]) -> str:
    """Join SPDX expressions by AND."""
    if len(expressions) == 1:
        return expressions[0]
    return " AND ".join(f"({text})" if " " in text else text for text in expressions)


def _files(project: SbomInput, paths: Iterable[str]) -> list[Component]:
    components: list[Component] = []
    for path in sorted(paths):
        component = _component("file", path, f"file:{path}")
        components.append({**component, "hashes": _hashes(project.files[path])})
    return components


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]


def _properties(**facts: object) -> list[dict[str, str]]:
    """Return the facts that are not empty as properties in the project's name space."""
    properties: list[dict[str, str]] = []
    for name, value in facts.items():
        if value:
            properties.append({"name": f"firmwright:{name}", "value": str(value)})
    return properties
