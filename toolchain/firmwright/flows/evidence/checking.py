"""Checks evidence: everything that can be is computed again and compared.

A record is hostile until it is checked. It decides only the options of a compilation
and the seed of its inputs; the firmware made from them runs in an emulator, never on
this computer. What only the sender can know, such as the date, is reported as not
checkable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from firmwright.base.errors import BoardError, FirmwrightError, UsageError
from firmwright.base.input_files import read_input_bytes
from firmwright.flows.evidence.collection import recompile
from firmwright.flows.evidence.findings import (
    OF_THE_SENDER,
    Finding,
    Verdict,
    compare_values,
    unchecked,
)
from firmwright.flows.evidence.firmware_checks import (
    FirmwareRebuild,
    check_device,
    check_firmware,
    rebuild_firmware,
)
from firmwright.flows.evidence.output_checks import (
    check_inputs,
    check_outputs,
    read_samples,
)
from firmwright.flows.evidence.record import Evidence
from firmwright.flows.model.model import MODEL_SUFFIXES, Model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.pipeline import Compilation, source_digest

_FILES_MAX: Final = 64
"""The number of models in a folder that are hashed."""


def check_evidence(
    evidence: Evidence,
    model: Model,
    *,
    board_dirs: Sequence[Path] = (),
    input_file: str = "",
) -> tuple[Finding, ...]:
    """Return a finding about each statement of the record.

    Args:
        model: The file that the record names, from the user.
        board_dirs: Folders of boards besides the project's own.
        input_file: The samples, if the record's are of a file.
    """
    digest = model.module.origin.sha256
    same_model = compare_values("model.sha256", evidence.model.sha256, digest)
    if same_model.verdict is Verdict.DIFFERS:
        return same_model, unchecked("all others", "The model is another one.")
    try:
        compiled = recompile(model, evidence.board, evidence.options, board_dirs)
        batch = read_samples(evidence, compiled, input_file)
    except BoardError as error:
        return same_model, unchecked("all others", str(error))
    except FirmwrightError as error:
        reason = f"The model does not compile with them: {error}"
        return same_model, Finding("options", Verdict.DIFFERS, reason)
    here = rebuild_firmware(evidence, compiled, batch)
    return same_model, *compare_evidence(evidence, compiled, batch, here)


def find_model_file(evidence: Evidence, folder: Path) -> Path:
    """Return the model file in `folder` with the recorded hash; UsageError without."""
    named = folder / evidence.model.file
    files = sorted(path for path in folder.iterdir() if path.suffix in MODEL_SUFFIXES)
    for path in (named, *files[:_FILES_MAX]):
        with contextlib.suppress(OSError):
            if source_digest(read_input_bytes(path)) == evidence.model.sha256:
                return path
    what = f"no model in this folder has the hash {evidence.model.sha256[:16]}..."
    hint = f"give the path of {evidence.model.file}."
    raise UsageError(what, where=str(folder), hint=hint)


def compare_evidence(
    evidence: Evidence,
    compiled: Compilation,
    batch: SampleBatch | None,
    here: FirmwareRebuild,
) -> tuple[Finding, ...]:
    """Return the findings about all but the model, given what was made here."""
    recorded = evidence.model.name
    return (
        compare_values("model.name", recorded, compiled.module.name),
        *check_firmware(evidence, compiled, here),
        *check_device(evidence, compiled.board, here),
        *check_inputs(evidence, compiled, batch),
        *check_outputs(evidence, compiled, batch, here.outputs),
        *[unchecked(name, "Only the sender can know it.") for name in OF_THE_SENDER],
    )
