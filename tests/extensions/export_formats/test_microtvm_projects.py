"""Those who leave microTVM: its project API and its build files serve our archives.

TVM_PATH names a checkout of github.com/apache/tvm at v0.14.0: its own client of the
project API, its `tvmc micro`, and the Makefile and program of its CMSIS-NN demo.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firmwright as fw
from firmwright.base.json_input import Json, JsonObject
from firmwright.base.trust import TRUST_VARIABLE
from firmwright.device.session import Session
from firmwright.extensions.export_formats.microtvm import template_project
from firmwright.extensions.export_formats.microtvm.project_handler import (
    ProjectHandler,
)
from firmwright.extensions.export_formats.microtvm.project_server import answer
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.export.package_export import export_model
from firmwright.graph_builder import GraphBuilder
from firmwright.pipeline import Compilation
from tests.archives import unpack_tar

HERE = Path(__file__).parent
DIGITS = HERE.parents[2] / "examples/01_digits"
IMAGES = np.load(DIGITS / "digits_test.npz")["input_1"][:8]
PATH_VARIABLE = "TVM_PATH"
CHECKOUT = Path(os.environ.get(PATH_VARIABLE, "")).resolve()
SERVER = "microtvm_api_server.py"
SECONDS = 300
COMMANDS = re.compile(
    r"<!-- not run: run by tests[^\n]*test_microtvm_projects.py -->\n```sh\n(.*?)```",
    re.DOTALL,
)
"""The commands of docs/reference/microtvm.md that need TVM."""
needs_tvm = pytest.mark.skipif(
    PATH_VARIABLE not in os.environ, reason=f"{PATH_VARIABLE} names no checkout of TVM"
)


class Client:
    """Sends requests to the server of a folder, in this process."""

    def __init__(self, folder: Path) -> None:
        self.handler = ProjectHandler(folder / SERVER)
        self.numbers = itertools.count(1)

    def __call__(self, method: str, **params: Json) -> Json:
        found = self.answer(method, params)
        assert "error" not in found, found["error"]
        return found["result"]

    def answer(self, method: str, params: Json) -> JsonObject:
        number = next(self.numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        found = answer(self.handler, json.dumps(request))
        assert (found["jsonrpc"], found["id"]) == ("2.0", number)
        return json.loads(json.dumps(found))

    def error(self, method: str, **params: Json) -> tuple[int, str]:
        found: Any = self.answer(method, params)["error"]
        return found["code"], found["message"]


class ClientTransport:
    """The link of a firmware over requests."""

    name = "requests"

    def __init__(self, client: Client) -> None:
        self.client = client

    def read(self, limit: int, timeout_s: float) -> bytes:
        found: Any = self.client.answer(
            "read_transport", {"n": limit, "timeout_sec": timeout_s}
        )
        if "error" in found:
            assert found["error"]["message"] == "IoTimeoutError"
            return b""
        return base64.b85decode(found["result"]["data"])

    def write(self, data: bytes) -> None:
        text = base64.b85encode(data).decode()
        self.client("write_transport", data=text, timeout_sec=5.0)

    def close(self) -> None:
        self.client("close_transport")


@pytest.fixture(scope="module")
def default_model() -> Compilation:
    """The bundled model for this machine, by microTVM's usual name and interface."""
    return fw.compile(fw.load(DIGITS / "digits.tflite", name="default"), c_api="tvm")


@pytest.fixture(scope="module")
def expected(default_model: Compilation) -> np.ndarray:
    """Return the outputs for `IMAGES`, by way of our own session."""
    with fw.session(default_model) as session:
        return session.run(IMAGES)


@pytest.mark.host_c
def test_a_client_generates_builds_flashes_and_talks(
    default_model: Compilation,
    expected: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TRUST_VARIABLE, str(tmp_path))
    archive = export_model(default_model, "mlf", tmp_path / "model.tar").path
    template, project = Client(template_project()), tmp_path / "project"
    about: Any = template("server_info_query", tvm_version="0.14.0")
    assert (about["is_template"], about["protocol_version"]) == (True, 1)
    options = {option["name"]: option["default"] for option in about["project_options"]}
    template(
        "generate_project",
        model_library_format_path=str(archive),
        standalone_crt_dir="unused",
        project_dir=str(project),
        options={**options, "board": "host"},
    )
    assert not (project / "build").exists(), "tvmc refuses to build a second time"
    client = Client(project)
    about = client("server_info_query", tvm_version="0.14.0")
    assert not about["is_template"]
    assert Path(about["model_library_format_path"]).read_bytes() == archive.read_bytes()
    client("build", options=options)
    assert (project / "build").is_dir(), "tvmc looks for it before it flashes"
    client("flash", options=options)
    client("open_transport", options=options)
    identity = bytes.fromhex(default_model.model_id)
    session = Session(ClientTransport(client), model_id=identity)
    with ModelSession(default_model, session, None) as running:
        np.testing.assert_array_equal(running.run(IMAGES), expected)
    closed = client.error("read_transport", n=1, timeout_sec=0)
    assert closed == (-32000, "TransportClosedError")


@pytest.mark.parametrize(
    ("request_line", "code", "message"),
    [
        ("{", -32700, "the request is not JSON"),
        ("[]", -32600, "the request is not an object"),
        ('{"id": 1}', -32600, "jsonrpc is None"),
        ('{"jsonrpc": "2.0", "method": "folder"}', -32601, "no method 'folder'"),
        ('{"jsonrpc": "2.0", "method": "build"}', -32602, "params is not an object"),
        (
            '{"jsonrpc": "2.0", "method": "build", "params": {}}',
            -32602,
            "the parameter options is missing",
        ),
        (
            '{"jsonrpc": "2.0", "method": "build", "params": {"options": {}, "x": 1}}',
            -32602,
            "no parameter x",
        ),
        (
            '{"jsonrpc": "2.0", "method": "build", "params": {"options": {"x": "1"}}}',
            -32000,
            "there is no option 'x'",
        ),
    ],
)
def test_wrong_requests_have_the_errors_of_json_rpc(
    request_line: str, code: int, message: str, tmp_path: Path
) -> None:
    found: Any = answer(ProjectHandler(tmp_path / SERVER), request_line)["error"]
    assert (found["code"], message in found["message"]) == (code, True), found


def test_archives_of_others_and_used_folders_are_refused(tmp_path: Path) -> None:
    client = Client(template_project())
    other = tmp_path / "other.tar"
    given = {"standalone_crt_dir": "", "options": {}}
    used = {**given, "project_dir": str(tmp_path), "model_library_format_path": ""}
    code, message = client.error("generate_project", **used)
    assert (code, "exists already" in message) == (-32000, True)
    other.write_bytes(b"not a tar")
    new = {**given, "project_dir": str(tmp_path / "p")}
    new["model_library_format_path"] = str(other)
    assert "cannot be read" in client.error("generate_project", **new)[1]
    subprocess.run(["tar", "cf", "other.tar", "-T", "/dev/null"], cwd=tmp_path)
    assert "no module of Firmwright" in client.error("generate_project", **new)[1]


@pytest.mark.host_c
def test_the_runtime_allocates_the_workspace_of_a_run(
    default_model: Compilation, expected: np.ndarray, tmp_path: Path
) -> None:
    archive = export_model(default_model, "mlf", tmp_path / "default.tar").path
    unpack_tar(archive, tmp_path)
    (module,) = json.loads((tmp_path / "metadata.json").read_text())["modules"].items()
    assert module[0] == module[1]["model_name"] == "default"
    (runtime,) = module[1]["external_dependencies"]
    assert (tmp_path / runtime["url"] / "include/tvm/runtime").is_dir()
    sources = [*tmp_path.glob("runtime/src/**/*.c"), *tmp_path.glob("codegen/**/*.c")]
    flags = ["-std=c99", "-O0", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-DTVMGEN_DEFAULT_ALLOC_WORKSPACE=1"]
    flags += ["-Iruntime/include", "-Icodegen/host/include", "-o", "app"]
    program = HERE / "microtvm_platform.c"
    command = ["cc", *flags, program, *sources, "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = [tmp_path / "app"]
    done = subprocess.run(run, input=IMAGES.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.int8).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.deep
@needs_tvm
@pytest.mark.qemu
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_client_and_the_command_of_tvm_run_our_projects(
    expected: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM's client leaves the process of the server to the collector of objects."""
    monkeypatch.setenv(TRUST_VARIABLE, str(tmp_path))
    compiled = fw.compile(fw.load(DIGITS / "digits.tflite"), board="mps2-an386")
    export_model(compiled, "mlf", tmp_path / "model.tar")
    page = (HERE.parents[2] / "docs/reference/microtvm.md").read_text(encoding="utf-8")
    (block,) = COMMANDS.findall(page)
    for line in block.replace("TEMPLATE", str(template_project())).splitlines():
        script = [sys.executable, HERE / "tvmc_micro.py", CHECKOUT]
        words = line.removeprefix("tvmc ").split()
        subprocess.run([*script, *words], cwd=tmp_path, check=True, timeout=SECONDS)

    client, server = load_tvm_client()
    opened = client.instantiate_from_dir(tmp_path / "project")

    class TvmTransport:
        name = "TVM's client"

        def read(self, limit: int, timeout_s: float) -> bytes:
            try:
                return opened.read_transport(limit, timeout_s)["data"]
            except server.IoTimeoutError:
                return b""

        def write(self, data: bytes) -> None:
            opened.write_transport(data, 5.0)

        def close(self) -> None:
            opened.close_transport()

    assert not opened.server_info_query("0.14.0")["is_template"]
    opened.open_transport({})
    session = Session(TvmTransport(), model_id=bytes.fromhex(compiled.model_id))
    with ModelSession(compiled, session, None) as running:
        np.testing.assert_array_equal(running.run(IMAGES), expected)
    with pytest.raises(server.TransportClosedError):
        opened.read_transport(1, 0.1)
    with pytest.raises(server.ServerError, match="there is no option 'x'"):
        opened.build({"x": "1"})
    opened.shutdown()


def load_tvm_client() -> tuple[Any, Any]:
    """Import TVM's project_api, which needs no other module of TVM."""
    folder, name = CHECKOUT / "python/tvm/micro/project_api", "tvm_project_api"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    modules = (
        importlib.import_module(f"{name}.{part}") for part in ("client", "server")
    )
    return next(modules), next(modules)


@pytest.mark.deep
@needs_tvm
@pytest.mark.host_c
@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc", "gcc"])
def test_the_makefile_and_program_of_a_demo_of_tvm_build_our_archive(
    compiler: str, tmp_path: Path
) -> None:
    graph = GraphBuilder("detection")
    scores = graph.input("input", (1, 2), "float32")
    result = graph.call("exp", scores, name="MobilenetV1_Predictions_Reshape_1")
    board = "host" if compiler == "gcc" else "mps3-an547"
    compiled = fw.compile(graph.model(result), board, c_api="tvm")
    demo = tmp_path / "cmsisnn"
    shutil.copytree(CHECKOUT / "apps/microtvm/cmsisnn", demo)
    unpack_tar(export_model(compiled, "mlf", tmp_path / "a.tar").path, demo / "build")
    targets = ["stack_allocator.o", "crt_backend_api.o", "libcodegen.a"]
    make = ["make", *(f"build/{name}" for name in targets)]
    make += ["CMSIS_PATH=/none", f"CC={compiler}"]
    if board != "host":
        subprocess.run(make, cwd=demo, check=True, timeout=SECONDS)
        return
    make += ["PKG_COMPILE_OPTS=-O1 -std=gnu99", "AR=ar", "RANLIB=ranlib"]
    subprocess.run(make, cwd=demo, check=True, timeout=SECONDS)
    stubs = {
        "uart_stdout.h": "static void UartStdOutInit(void) { setbuf(stdout, NULL); }\n",
        "inputs.h": "float input[] = {-1.0f, 2.0f};\n",
        "outputs.h": "float output[2];\n",
    }
    for name, text in stubs.items():
        (demo / "include" / name).write_text(text)
    folders = ("include", "build/runtime/include", "build/codegen/host/include")
    command = ["gcc", "src/demo_bare_metal.c", *(f"-I{folder}" for folder in folders)]
    command += ["build/libcodegen.a", "build/stack_allocator.o", "-lm", "-o", "demo"]
    subprocess.run(command, cwd=demo, check=True)
    with subprocess.Popen(
        [demo / "demo"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = list(
            itertools.takewhile(lambda line: "EXIT" not in line, process.stdout)
        )
        process.kill()  # it waits for the emulator to end
    assert said[-1] == "Person detected.\n"
