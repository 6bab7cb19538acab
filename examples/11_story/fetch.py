"""Download the weights and the tokenizer of the story model into this folder.

Source: huggingface.co/karpathy/tinyllamas (MIT). A file is stored only if its SHA-256
is the recorded one.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from pathlib import Path

URL = "https://huggingface.co/karpathy/tinyllamas/resolve/main/stories260K"
SHA256 = {
    "stories260K.bin": (
        "b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696"
    ),
    "tok512.bin": "037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312",
}
SIZE_MAX_BYTES = 4 << 20
TIMEOUT_S = 60.0


def main() -> None:
    folder = Path(__file__).resolve().parent
    for name, digest in SHA256.items():
        path = folder / name
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            print(f"kept {name}")
            continue
        with urllib.request.urlopen(f"{URL}/{name}", timeout=TIMEOUT_S) as answer:
            data = answer.read(SIZE_MAX_BYTES)
        if (found := hashlib.sha256(data).hexdigest()) != digest:
            sys.exit(
                f"{URL}/{name}: SHA-256 is {found}, expected {digest}; nothing was "
                "written"
            )
        path.write_bytes(data)
        print(f"fetched {name}")


if __name__ == "__main__":
    main()
