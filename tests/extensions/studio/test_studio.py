"""The studio answers its own page only, and a person gets from a file to a package."""

from __future__ import annotations

import http.client
import json
import shlex
import subprocess
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firmwright.base.errors import ToolFailedError
from firmwright.extensions.studio import program_search
from firmwright.extensions.studio.program_search import FrontSearch, SearchState
from firmwright.extensions.studio.server import MODEL_BYTES_MAX, StudioServer
from firmwright.extensions.studio.workbench import MODELS_MAX, Workbench
from firmwright.flows.predict import program_front
from onnx import TensorProto, helper
from tests.browser import DESKTOP, PHONE, OpenPage, Pages

if TYPE_CHECKING:
    from playwright.sync_api import Page

REQUEST = {
    "board": "nucleo-l4r5zi",
    "optimize": "balanced",
    "ram_bytes": None,
    "flash_bytes": None,
}


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[StudioServer]:
    folder = tmp_path / "studio"
    folder.mkdir()
    server = StudioServer(Workbench(folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def send(
    studio: StudioServer,
    path: str,
    body: bytes | Iterator[bytes] = b"{}",
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=60)
    given = {"X-Firmwright-Token": studio.token, **(headers or {})}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    is_json = answer.headers["Content-Type"] == "application/json"
    return answer.status, json.loads(text) if is_json else {"text": text.decode()}


def add_digits(studio: StudioServer, digits_path: Path) -> str:
    status, found = send(
        studio, "/model", digits_path.read_bytes(), {"X-File-Name": "digits.tflite"}
    )
    assert status == 200
    assert found["name"] == "digits"
    return str(found["model"])


def test_it_listens_on_this_pc_only(studio: StudioServer) -> None:
    assert studio.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Firmwright-Token": ""},
        {"X-Firmwright-Token": "guess"},
        {"X-Firmwright-Token": "\u00e9"},
        {"Host": "attacker.example"},
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_other_pages_get_nothing(headers: dict[str, str], studio: StudioServer) -> None:
    for path in ("/choices", "/model", "/fit", "/package"):
        status, found = send(studio, path, headers=headers)
        assert status == 403
        assert list(found) == ["error"]


@pytest.mark.parametrize("query", ["", "?token=", "?token=guess", "?other=1"])
def test_the_page_needs_its_token(query: str, studio: StudioServer) -> None:
    assert send(studio, f"/{query}", method="GET")[0] == 403


def test_the_page_loads_nothing_from_elsewhere(studio: StudioServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=60)
    connection.request("GET", f"/?token={studio.token}")
    answer = connection.getresponse()
    page = answer.read().decode()
    connection.close()
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "http://" not in page
    assert "https://" not in page


def test_a_file_that_is_too_large_is_refused(studio: StudioServer) -> None:
    size = 60 << 20
    chunk = bytes(1 << 20)
    headers = {"X-File-Name": "x.tflite", "Content-Length": str(size)}
    status, found = send(studio, "/model", (chunk for _ in range(60)), headers)
    assert status == 413
    assert f"at most {MODEL_BYTES_MAX >> 20} MiB" in found["error"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.tflite", b"not a model", "x"),
        ("x.onnx", b"\xff" * 100, "x"),
        ("x.exe", b"MZ", "this is not a model file"),
        ("../../etc/x.fwir", b"firmwright ir 2\n", "this is not a model file"),
        ("", b"", "this is not a model file"),
    ],
)
def test_a_broken_model_is_explained(
    name: str, data: bytes, message: str, studio: StudioServer, tmp_path: Path
) -> None:
    before = set(tmp_path.rglob("*"))
    status, found = send(studio, "/model", data, {"X-File-Name": name})
    assert status == 422
    assert message in found["error"]
    added = set(tmp_path.rglob("*")) - before
    assert all(tmp_path / "studio" in path.parents for path in added)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"model": 1}',
        json.dumps({**REQUEST, "model": "unknown"}).encode(),
        json.dumps({**REQUEST, "model": "x", "ram_bytes": -1}).encode(),
        json.dumps({**REQUEST, "model": "x", "ram_bytes": "1e9"}).encode(),
        json.dumps({**REQUEST, "model": "x", "optimize": "--trust"}).encode(),
    ],
)
def test_damaged_requests_are_refused(body: bytes, studio: StudioServer) -> None:
    status, found = send(studio, "/fit", body)
    assert status == 422
    assert found["error"]


def test_unknown_paths_and_bodies_without_length(studio: StudioServer) -> None:
    assert send(studio, "/etc/passwd")[0] == 404
    assert send(studio, f"/x?token={studio.token}", method="GET")[0] == 404
    chunked = {"Transfer-Encoding": "chunked"}
    assert send(studio, "/fit", iter([b"{}"]), chunked)[0] == 411


def test_the_oldest_model_makes_room(studio: StudioServer, digits_path: Path) -> None:
    models = [add_digits(studio, digits_path) for _ in range(MODELS_MAX + 1)]
    first = json.dumps({**REQUEST, "model": models[0]}).encode()
    last = json.dumps({**REQUEST, "model": models[-1]}).encode()
    status, found = send(studio, "/fit", first)
    assert status == 422
    assert "drop the file again" in found["error"]
    status, found = send(studio, "/fit", last)
    assert status == 200
    assert found["fit"]["fits"]


def test_the_command_compiles_the_same(
    studio: StudioServer, digits_path: Path, fw: Any
) -> None:
    model = add_digits(studio, digits_path)
    request = {**REQUEST, "model": model, "ram_bytes": 2000}
    _, found = send(studio, "/fit", json.dumps(request).encode())
    words = shlex.split(found["command"])[1:]
    assert words[1] == "digits.tflite"
    words[1] = str(digits_path)
    compiled = fw(*words, "--json").json
    assert compiled["workspace_bytes"] == found["fit"]["workspace_bytes"] <= 2000


def test_chips_are_offered_beside_the_boards(
    studio: StudioServer, digits_path: Path
) -> None:
    _, found = send(studio, "/choices")
    boards, chips = found["groups"]
    assert "nucleo-l4r5zi" in [board["name"] for board in boards["boards"]]
    (chip,) = (item for item in chips["boards"] if item["name"] == "stm32g474re")
    request = {**REQUEST, "model": add_digits(studio, digits_path)}
    body = json.dumps({**request, "board": chip["name"]}).encode()
    assert send(studio, "/fit", body)[1]["fit"]["chip"] == "STM32G474RE"


def test_a_search_is_ended_and_requests_are_answered_meanwhile(
    studio: StudioServer, digits_path: Path
) -> None:
    body = json.dumps({**REQUEST, "model": add_digits(studio, digits_path)}).encode()
    assert send(studio, "/search/state")[0] == 422
    assert send(studio, "/search", body) == (200, {"done": 0, "total": 0})
    assert send(studio, "/fit", body)[0] == 200
    assert "programs" not in send(studio, "/search/state")[1]
    assert send(studio, "/search/end")[0] == 200
    assert send(studio, "/search/state")[0] == 422


@pytest.mark.deep
def test_a_search_counts_its_variants_and_names_its_error(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_front, "OBJECTIVES", ("size",))
    states: list[SearchState] = []
    program_search.search_programs(
        str(digits_path), {"board": "nucleo-l4r5zi"}, states.append
    )
    *counted, last = states
    totals = {state.total for state in counted}
    assert [state.done for state in counted] == list(range(max(totals)))
    assert last.programs
    program_search.search_programs("none.tflite", {}, states.append)
    assert "none.tflite" in states[-1].error


def test_a_search_that_dies_is_an_error(digits_path: Path) -> None:
    search = FrontSearch(str(digits_path), {"board": "nucleo-l4r5zi"})
    search._process._process.kill()
    search._process._process.join(10)
    with pytest.raises(ToolFailedError, match="ended too early"):
        search.state()
    search.end()


def test_each_unsupported_place_is_a_line(studio: StudioServer) -> None:
    nodes = []
    for name, result in (("first", "y"), ("second", "z")):
        node = helper.make_node(
            "MaxRoiPool", ["x", "regions"], [result], name=name, pooled_shape=[2, 2]
        )
        nodes.append(node)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (
            ("x", [1, 1, 3, 3]),
            ("regions", [1, 5]),
            ("y", [1, 1, 2, 2]),
            ("z", [1, 1, 2, 2]),
        )
    ]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:])
    opset = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opset).SerializeToString()
    status, found = send(studio, "/model", data, {"X-File-Name": "regions.onnx"})
    assert status == 422
    assert found["error"] == "regions.onnx: the model is not supported in 2 places:"
    assert [place.split('"')[1] for place in found["places"]] == ["first", "second"]
    assert "custom operator" in found["remedy"]


def open_studio(page: Page, studio: StudioServer) -> OpenPage:
    opened = OpenPage(page)
    page.on("console", lambda message: opened.errors.append(message.text))
    page.on("pageerror", lambda error: opened.errors.append(error.message))
    page.set_default_timeout(90_000)
    page.goto(studio.address)
    page.wait_for_selector("body[data-ready]")
    return opened


@pytest.mark.browser
@pytest.mark.parametrize(
    "width", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.deep)]
)
def test_a_person_fits_a_model_and_builds_the_package(
    width: int,
    pages: Pages,
    studio: StudioServer,
    digits_path: Path,
    tmp_path: Path,
) -> None:
    context = pages.browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    opened = open_studio(page, studio)
    assert opened.problems() == []
    # A file is dropped, as the browser delivers it.
    page.evaluate(
        """async ([bytes, name]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], name));
          const drop = new DragEvent("drop", { dataTransfer: transfer, bubbles: true });
          document.getElementById("drop").dispatchEvent(drop);
        }""",
        [list(digits_path.read_bytes()), "digits.tflite"],
    )
    page.wait_for_selector("#verdict.good")
    page.fill("#find-board", "l4r5")
    page.select_option("#board", "nucleo-l4r5zi")
    page.locator("#figures", has_text="STM32L4R5ZI").wait_for()
    page.click("#show-front")
    page.wait_for_selector("#search-progress")
    figures = page.inner_text("#figures")
    assert "ms" in figures
    assert page.locator("#plan svg").count() == 1
    before = page.inner_html("#plan")
    # The knob for RAM changes the plan, down to where nothing fits.
    page.fill("#ram", "2000")
    page.dispatch_event("#ram", "change")
    page.locator("#command", has_text="--ram 2000").wait_for()
    assert page.inner_html("#plan") != before
    page.fill("#ram", "100")
    page.dispatch_event("#ram", "change")
    page.wait_for_selector("#verdict.bad")
    assert page.is_hidden("#search")
    page.click("#remedies button")
    page.wait_for_selector("#verdict.good")
    assert int(page.input_value("#ram")) > 100
    page.click("#show-source")
    page.wait_for_selector("#source:not([hidden])")
    assert "digits_run" in page.inner_text("#source")
    assert opened.problems() == []
    page.select_option("#format", "makefile")
    with page.expect_download() as waiting:
        page.click("#download button")
    archive = tmp_path / "package.zip"
    waiting.value.save_as(archive)
    # Nothing of the last model stays beside the error of the next one.
    opened.errors.clear()
    page.set_input_files(
        "#file", {"name": "broken.tflite", "mimeType": "", "buffer": b"broken"}
    )
    page.wait_for_selector("#message:not([hidden])")
    for part in ("#result", "#plan-card", "#front-card", "#source-card"):
        assert page.is_hidden(part)
    context.close()
    if width == DESKTOP:
        folder = tmp_path / "package"
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
        command = ["make", "-C", str(folder), "check"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


@pytest.mark.deep
@pytest.mark.browser
def test_a_program_of_the_front_sets_the_knobs(
    pages: Pages, studio: StudioServer, digits_path: Path
) -> None:
    context = pages.browser.new_context()
    page = context.new_page()
    opened = open_studio(page, studio)
    page.set_input_files("#file", digits_path)
    page.wait_for_selector("#verdict")
    page.wait_for_selector("#show-front")
    page.click("#show-front")
    page.wait_for_selector("#front tbody tr")
    rows = page.locator("#front tbody tr")
    chosen = rows.nth(rows.count() - 1)
    options = chosen.locator("button").inner_text()
    bytes_text = chosen.locator("td.number").first.inner_text()
    chosen.locator("button").click()
    goal = options.split()[1]
    page.locator("#figures", has_text=f"{bytes_text} bytes").wait_for()
    assert page.input_value("#optimize") == goal
    page.set_input_files(
        "#file", {"name": "broken.tflite", "mimeType": "", "buffer": b"broken"}
    )
    page.wait_for_selector("#message:not([hidden])")
    expected = "Failed to load resource"
    assert [text for text in opened.errors if expected not in text] == []
    context.close()
