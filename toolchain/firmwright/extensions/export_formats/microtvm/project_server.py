"""A JSON-RPC server of microTVM's project API: a request and an answer per line.

TVM starts the server with the numbers of two pipes. Standard output is free for builds.
"""

import argparse
import inspect
import io
import json
import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from firmwright.base.errors import FirmwrightError
from firmwright.base.json_input import Json, JsonObject, parse_json
from firmwright.extensions.export_formats.microtvm.project_handler import (
    IoTimeoutError,
    ProjectHandler,
    TransportClosedError,
)

_SERVER_ERROR: Final = -32000
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602


class RpcError(Exception):
    """A request that JSON-RPC does not allow, with the number of the error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(server: Path) -> None:
    """Serve the project in the folder of the file `server` until the pipe ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read-fd", type=int, required=True)
    parser.add_argument("--write-fd", type=int, required=True)
    parser.add_argument("--debug", action="store_true", help="is accepted and ignored")
    args = parser.parse_args()
    handler = ProjectHandler(server)
    with (
        os.fdopen(args.read_fd, "rb", buffering=0) as requests,
        os.fdopen(args.write_fd, "wb", buffering=0) as answers,
    ):
        try:
            serve(handler, requests, answers)
        finally:
            handler.close_transport()


def serve(handler: ProjectHandler, requests: BinaryIO, answers: BinaryIO) -> None:
    for line in io.TextIOWrapper(requests, encoding="utf-8"):
        answers.write(json.dumps(answer(handler, line)).encode() + b"\n")


def answer(handler: ProjectHandler, line: str) -> JsonObject:
    """Return the answer to the request in a line; errors are answers, too."""
    number: Json = None
    try:
        request = _parse(line)
        number = request.get("id")
        method = _find_method(handler, request)
        result = method(**_parameters(method, request))
    except RpcError as error:
        return _failed(number, error.code, str(error))
    except (TransportClosedError, IoTimeoutError) as error:
        # By its name TVM finds the exception of its own.
        return _failed(number, _SERVER_ERROR, type(error).__name__)
    except FirmwrightError as error:
        return _failed(number, _SERVER_ERROR, str(error))
    except Exception as error:  # noqa: BLE001 - the client learns of any defect
        message = f"{type(error).__name__}: {error}"
        return _failed(number, _SERVER_ERROR, message, traceback.format_exc())
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _failed(number: Json, code: int, message: str, trace: str = "") -> JsonObject:
    data = {"traceback": trace} if trace else None
    error: JsonObject = {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": number, "error": error}


def _parse(line: str) -> JsonObject:
    try:
        request = parse_json(line)
    except ValueError as error:
        raise RpcError(_PARSE_ERROR, f"the request is not JSON: {error}") from error
    if not isinstance(request, Mapping):
        raise RpcError(_INVALID_REQUEST, "the request is not an object")
    if request.get("jsonrpc") != "2.0":
        found = request.get("jsonrpc")
        raise RpcError(_INVALID_REQUEST, f'jsonrpc is {found!r}, and not "2.0"')
    return request


def _find_method(handler: ProjectHandler, request: JsonObject) -> Callable[..., Json]:
    name = request.get("method")
    if not isinstance(name, str) or name not in handler.methods:
        raise RpcError(_METHOD_NOT_FOUND, f"there is no method {name!r}")
    return handler.methods[name]


def _parameters(method: Callable[..., Json], request: JsonObject) -> JsonObject:
    """Return the parameters of a request, which must be exactly the method's."""
    given = request.get("params")
    if not isinstance(given, Mapping):
        raise RpcError(_INVALID_PARAMS, "params is not an object")
    wanted = inspect.signature(method).parameters
    for name in wanted.keys() - given.keys():
        raise RpcError(_INVALID_PARAMS, f"the parameter {name} is missing")
    for name in given.keys() - wanted.keys():
        raise RpcError(_INVALID_PARAMS, f"there is no parameter {name}")
    return given
