"""Hashes of a model's C interface and of its files."""

import hashlib
import re

from firmwright.artifacts import SourceTree

_NO_HASH = "_abi_00000000"
_C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ID_ARRAY = re.compile(rb"(\nconst uint8_t \w+_id\[16\] = \{)[^}]*")


def with_interface_hash(header: str) -> str:
    code = " ".join(_C_COMMENT.sub("", header).split())
    return header.replace(_NO_HASH, f"_abi_{hashlib.sha256(code.encode()).hexdigest()[:8]}")


def run_symbol(tree: SourceTree, name: str) -> str:
    macro = re.compile(rf"^#define {name}_run (\w+_abi_[0-9a-f]{{8}})$", re.MULTILINE)
    return str(macro.findall(str(tree.files[f"model/{name}.h"]))[0])


def model_id(tree: SourceTree) -> str:
    """Return a hash of the model's files, which host and firmware compare: 32 hex digits."""
    digest = hashlib.sha256()
    for path, content in tree.encoded().items():
        if path.startswith(("model/", "backend/")):
            data = _ID_ARRAY.sub(rb"\1", content)  # without the copy of the hash itself
            digest.update(f"{path}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()[:32]


def insert_model_id(files: dict[str, str | bytes], name: str) -> str:
    identity = model_id(SourceTree(files))
    rows = "\n    ".join(["", *(f"{row}," for row in format_model_id(identity))]) + "\n"
    source = str(files[f"model/{name}.c"]).encode()
    files[f"model/{name}.c"] = _ID_ARRAY.sub(rb"\1" + rows.encode(), source).decode()
    return identity


def format_model_id(identity: str) -> list[str]:
    halves = (identity[:16], identity[16:])
    return [", ".join(f"0x{half[i : i + 2]}" for i in range(0, 16, 2)) for half in halves]
