"""Download the nine MLPerf Tiny reference models of the larger tests and the benchmark.

The files go to a folder (default: models/ next to this script) under the names
that the tests expect. A file is stored only if its SHA-256 is the recorded
one, so a folder never contains a damaged or wrong model; correct files are kept.
Source: github.com/mlcommons/tiny at the commit below, Apache-2.0.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

COMMIT = "1afd2c9"
BASE_URL = (
    f"https://raw.githubusercontent.com/mlcommons/tiny/{COMMIT}/benchmark/training"
)
TIMEOUT_S = 60.0
SIZE_MAX_BYTES = (
    4 << 20
)  # the largest of the nine is 1 MiB; more than this is not a model


@dataclass(frozen=True, slots=True)
class Model:
    """The tests' name of a file, its path under BASE_URL and its SHA-256."""

    name: str
    path: str
    sha256: str


MODELS = (
    Model(
        "ad01_fp32.tflite",
        "anomaly_detection/trained_models/ad01_fp32.tflite",
        "c66636f4d7f8af8b10518e7be750a22c9d8d46ec97326b40b0d94c097e0aad9b",
    ),
    Model(
        "ad01_int8.tflite",
        "anomaly_detection/trained_models/ad01_int8.tflite",
        "87cf24194ef93d1d9b11a591d805526b98008e351655d29883c825c9c106ba24",
    ),
    Model(
        "kws_ref_model.tflite",
        "keyword_spotting/trained_models/kws_ref_model.tflite",
        "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae",
    ),
    Model(
        "kws_ref_model_float32.tflite",
        "keyword_spotting/trained_models/kws_ref_model_float32.tflite",
        "e5004c6f1012246e33fa068d8488325538e0444073cd361f5a7edb40c73f12d2",
    ),
    Model(
        "pretrainedResnet.tflite",
        "image_classification/trained_models/pretrainedResnet.tflite",
        "b5c0046d6e0328b4956afd6baa29555a29b1f1c65bdd45aaed75b7cd484d9f79",
    ),
    Model(
        "pretrainedResnet_quant.tflite",
        "image_classification/trained_models/pretrainedResnet_quant.tflite",
        "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
    ),
    Model(
        "str_ww_ref_model.tflite",
        "streaming_wakeword/trained_models/str_ww_ref_model.tflite",
        "3af8550895ba7d5c584277102b5075c52dcfa63ba9d2b2240f37c4e6abd5dd2b",
    ),
    Model(
        "vww_96_float.tflite",
        "visual_wake_words/trained_models/vww_96_float.tflite",
        "115bbc094d2119561320a21f01b6500a18bea8cc8589282ab007097bec8af38c",
    ),
    Model(
        "vww_96_int8.tflite",
        "visual_wake_words/trained_models/vww_96_int8.tflite",
        "597a384c8c2c8a1276f04702f25013b7838f2f814f1ca7c174d295b73e3d6b7b",
    ),
)


class FetchError(Exception):
    """One file could not be downloaded; the message gives the reason and a remedy."""


def holds(path: Path, model: Model) -> bool:
    """Return whether the file exists with the recorded content."""
    return (
        path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
    )


def download(url: str) -> bytes:
    """Return the body of one response, at most SIZE_MAX_BYTES."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(SIZE_MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise FetchError(
            f"{url}: the server answered {error.code} {error.reason}"
        ) from error
    except urllib.error.URLError as error:
        raise FetchError(
            f"{url}: {error.reason}. Try: check the network and the https_proxy "
            "variable."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(
            f"{url}: the connection broke: {error}. Try: run this again."
        ) from error
    if len(body) > SIZE_MAX_BYTES:
        raise FetchError(
            f"{url}: the answer is larger than {SIZE_MAX_BYTES} bytes: not the model"
        )
    return body


def fetch(model: Model, folder: Path, base_url: str) -> str:
    """Store one model in the folder; return the action taken."""
    path = folder / model.name
    if holds(path, model):
        return "kept"
    url = f"{base_url}/{model.path}"
    body = download(url)
    found = hashlib.sha256(body).hexdigest()
    if found != model.sha256:
        raise FetchError(
            f"{url}: SHA-256 is {found}, expected {model.sha256}; nothing was written"
        )
    part = path.with_suffix(".part")
    part.write_bytes(body)
    os.replace(part, path)
    return "fetched"


def main() -> int:
    """Download missing files; return 0 if all nine are present, otherwise 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(__file__).resolve().parent / "models",
    )
    parser.add_argument(
        "--base-url", default=BASE_URL, help="a mirror of benchmark/training"
    )
    options = parser.parse_args()
    failures = 0
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for model in MODELS:
            try:
                print(f"{fetch(model, options.folder, options.base_url)} {model.name}")
            except FetchError as error:
                failures += 1
                print(f"{model.name}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"cannot write the models: {error}", file=sys.stderr)
        return 1
    if failures:
        print(f"{failures} of {len(MODELS)} models are missing.", file=sys.stderr)
        return 1
    print(
        f"all {len(MODELS)} are in {options.folder}; FIRMWRIGHT_MODELS may name that "
        "folder"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
