"""The web server of the studio, for one person on this PC.

It listens on the loopback interface only. Each request must name this server as its
host, so that no other site's name can be pointed at it, come from its own page if it
states an origin, and have the token of the page's address. Nothing is sent elsewhere.
"""

import hmac
import http.server
import json
import secrets
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from firmwright.base.errors import (
    FirmwrightError,
    InternalError,
    UnsupportedError,
    UsageError,
)
from firmwright.base.json_input import JsonObject, as_object, parse_json
from firmwright.base.templates import render_template
from firmwright.base.version import VERSION
from firmwright.extensions.studio.workbench import (
    ACCEPTED_SUFFIXES,
    Workbench,
    read_request,
)

MODEL_BYTES_MAX = 32 << 20
"""The largest model that is read; microcontrollers have less flash."""
_JSON_BYTES_MAX = 1 << 16
_DISCARDED_BYTES_MAX = 256 << 20
"""What is read of a body that is too large, so that the browser sees the answer."""
_CHUNK_BYTES = 1 << 20
_SOCKET_TIMEOUT_S = 60
_TOKEN_HEADER = "X-Firmwright-Token"
_NAME_HEADER = "X-File-Name"
Answer = Callable[[JsonObject], dict[str, object]]


class StudioServer(http.server.ThreadingHTTPServer):
    """A server of one page; `address` has the token."""

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, workbench: Workbench, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.workbench = workbench
        self.token = secrets.token_urlsafe(24)
        self.answers: dict[str, Answer] = {
            "/choices": lambda _: workbench.choices(),
            "/fit": lambda data: workbench.fit(read_request(data)),
            "/search": lambda data: workbench.start_search(read_request(data)),
            "/search/state": lambda _: workbench.search_state(),
            "/search/end": lambda _: workbench.end_search(),
            "/source": lambda data: workbench.source(read_request(data)),
        }

    def server_close(self) -> None:
        """Close the port, and end the search that may run."""
        super().server_close()
        self.workbench.end_search()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that closes a connection; other errors are defects."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            raise InternalError("a request of the studio failed.") from error

    def has_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one connection of the browser."""

    server: StudioServer
    server_version = "firmwright"
    sys_version = ""
    timeout: ClassVar[int] = _SOCKET_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no log: addresses have the token."""

    def do_GET(self) -> None:
        """Send the page to whoever has its address."""
        url = urlsplit(self.path)
        tokens = parse_qs(url.query).get("token", [""])
        if not self._is_from_here() or not self.server.has_token(tokens[0]):
            self._refuse(HTTPStatus.FORBIDDEN, "open the address that studio prints.")
            return
        if url.path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page.")
            return
        nonce = secrets.token_urlsafe(16)
        page = render_template(
            __package__,
            "studio.html.j2",
            nonce=nonce,
            token=self.server.token,
            version=VERSION,
            bytes_max=MODEL_BYTES_MAX,
            suffixes=ACCEPTED_SUFFIXES,
        )
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src "
            "'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        )
        self._send(
            HTTPStatus.OK,
            "text/html; charset=utf-8",
            page.encode(),
            {"Content-Security-Policy": policy},
        )

    def do_POST(self) -> None:
        """Answer the page's script."""
        given = self.headers.get(_TOKEN_HEADER, "")
        if not self._is_from_here() or not self.server.has_token(given):
            self._discard()
            self._refuse(HTTPStatus.FORBIDDEN, "the token of the page is missing.")
            return
        try:
            self._answer(urlsplit(self.path).path)
        except InternalError as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        except FirmwrightError as error:
            body = json.dumps(_describe(error)).encode()
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            self._send(status, "application/json", body, {})
        except MemoryError:
            text = "the memory of this computer is not enough."
            self._refuse(HTTPStatus.INSUFFICIENT_STORAGE, text)

    def _answer(self, path: str) -> None:
        limit = MODEL_BYTES_MAX if path == "/model" else _JSON_BYTES_MAX
        body = self._read_body(limit)
        if body is None:
            return
        if path == "/model":
            name = unquote(self.headers.get(_NAME_HEADER, ""))
            self._send_json(self.server.workbench.add_model(name, body))
        elif path == "/package":
            self._send_package(_read_json(body))
        elif path in self.server.answers:
            self._send_json(self.server.answers[path](_read_json(body)))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such request.")

    def _is_from_here(self) -> bool:
        """Return whether the host is this server, and the origin its own page."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return False
        origin = self.headers.get("Origin")
        own = [f"http://{host}" for host in self.server.hosts]
        return origin is None or origin in own

    def _read_body(self, limit: int) -> bytes | None:
        """Return the body; refuse one without length, or above the limit."""
        text = self.headers.get("Content-Length", "")
        if not text.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "the length is not stated.")
            return None
        size = int(text)
        if size > limit:
            self._discard()
            megabytes = limit / (1 << 20)
            what = f"the file has {size:,} bytes; at most {megabytes:g} MiB are read."
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)
            return None
        return self.rfile.read(size)

    def _discard(self) -> None:
        """Read a body that is refused, up to a limit; then the connection closes."""
        self.close_connection = True
        text = self.headers.get("Content-Length", "")
        left = min(int(text), _DISCARDED_BYTES_MAX) if text.isdecimal() else 0
        while left > 0:
            chunk = self.rfile.read(min(left, _CHUNK_BYTES))
            if not chunk:
                return
            left -= len(chunk)

    def _send_package(self, data: JsonObject) -> None:
        form = data.get("format")
        if not isinstance(form, str):
            raise UsageError("format is not a text.")
        archive = self.server.workbench.package(read_request(data), form)
        disposition = f'attachment; filename="{archive.file_name}"'
        self._send(
            HTTPStatus.OK,
            "application/octet-stream",
            archive.data,
            {"Content-Disposition": disposition, _NAME_HEADER: archive.file_name},
        )

    def _send_json(self, data: dict[str, object]) -> None:
        body = json.dumps(data).encode()
        self._send(HTTPStatus.OK, "application/json", body, {})

    def _refuse(self, status: HTTPStatus, what: str) -> None:
        body = json.dumps({"error": what}).encode()
        self._send(status, "application/json", body, {})

    def _send(
        self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str]
    ) -> None:
        self.send_response(status)
        usual = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in {**usual, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _describe(error: FirmwrightError) -> dict[str, object]:
    """Return an error with a line for each place of the model, and the remedy."""
    if not isinstance(error, UnsupportedError):
        return {"error": str(error)}
    first, *places = error.what.splitlines()
    where = f"{error.where}: " if error.where else ""
    return {"error": where + first, "places": places, "remedy": error.hint}


def _read_json(body: bytes) -> JsonObject:
    try:
        return as_object(parse_json(body.decode("utf-8")))
    except (ValueError, TypeError) as error:
        raise UsageError("the request is not a JSON object.") from error
