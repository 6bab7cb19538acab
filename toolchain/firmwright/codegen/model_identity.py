"""Hashes of a model's C interface and of its files."""

import hashlib
import re

from firmwright.artifacts import SourceTree

_NO_HASH = "_abi_00000000"
_C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CRC32 = re.compile(r"^(#define \w+_CRC32) 0x[0-9a-f]{8}u$", re.MULTILINE)
_POOL_FILE = re.compile(r"model/\w+\.(bin|inc)")
_ID_ARRAY = re.compile(rb"(\nconst uint8_t \w+_id\[16\] = \{)[^}]*")


def with_interface_hash(header: str) -> str:
    """Insert a hash of the declarations, without constants outside the image."""
    code = " ".join(_CRC32.sub("", _C_COMMENT.sub("", header)).split())
    digest = hashlib.sha256(code.encode()).hexdigest()
    return header.replace(_NO_HASH, f"_abi_{digest[:8]}")


def run_symbol(tree: SourceTree, name: str) -> str:
    macro = re.compile(rf"^#define {name}_run (\w+_abi_[0-9a-f]{{8}})$", re.MULTILINE)
    return str(macro.findall(str(tree.files[f"model/{name}.h"]))[0])


def model_id(tree: SourceTree) -> str:
    """Return a hash of the model's files, for host and firmware: 32 hex digits.

    Constant pools outside the image do not count, nor what names them or the model's
    file, since new weights suit the same firmware.
    """
    digest = hashlib.sha256()
    contents = tree.encoded()
    pools = {path for path in contents if _POOL_FILE.fullmatch(path)}
    for path, content in contents.items():
        if path.startswith(("model/", "backend/")) and path not in pools:
            data = _ID_ARRAY.sub(rb"\1", content)  # without the copy of the hash itself
            if pools:
                data = _without_values(data)
            digest.update(f"{path}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()[:32]


def _without_values(content: bytes) -> bytes:
    text = content.decode(errors="replace")
    return _CRC32.sub(r"\1", _C_COMMENT.sub("", text)).encode()


def insert_model_id(files: dict[str, str | bytes], name: str) -> str:
    identity = model_id(SourceTree(files))
    rows = "\n"
    for row in format_model_id(identity):
        rows += f"    {row},\n"
    source = str(files[f"model/{name}.c"]).encode()
    files[f"model/{name}.c"] = _ID_ARRAY.sub(rb"\1" + rows.encode(), source).decode()
    return identity


def format_model_id(identity: str) -> list[str]:
    rows: list[str] = []
    for half in (identity[:16], identity[16:]):
        digits = [half[at : at + 2] for at in range(0, 16, 2)]
        rows.append(", ".join(f"0x{pair}" for pair in digits))
    return rows
