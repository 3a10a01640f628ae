"""The door: HTTP on the loopback alone, a few addresses, answers in JSON, the page's own files.

Rules: the Host header must name this server (a page elsewhere may have pointed a name of its own at 127.0.0.1), and an
Origin that is not ours is refused; nothing is said to other origins. Questions are JSON of limited size. The page loads
nothing but what lies here, and no script or style stands in its text. One step is played at a time, in a thread, so
that the door stays open; a question that the page has replaced by a newer one is dropped. What is wrong with a scenario
is an answer (200); what is wrong with a question is not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zerosim.errors import InputError, Problem, ZerosimError
from zerosim.playground.answer import answer, beginning
from zerosim.playground.downloads import DOWNLOADS
from zerosim.playground.player import Newest, Played, Player, SupersededError
from zerosim.playground.start import Start
from zerosim.playground.state import Complaint, complaints, read_state
from zerosim.playground.thread import PlayThread
from zerosim.report.figure import script
from zerosim.report.page import style
from zerosim.simulation import no_collection

HOST = "127.0.0.1"
LARGEST = 65_536  # bytes of a question: a state has some hundred
SAFE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": SAFE,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE = {
    "/": ("index.html", "text/html"),
    "/knobs.js": ("knobs.js", "text/javascript"),
    "/answer.js": ("answer.js", "text/javascript"),
    "/link.js": ("link.js", "text/javascript"),
    "/asking.js": ("asking.js", "text/javascript"),
    "/play.js": ("play.js", "text/javascript"),
    "/play.css": ("play.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
OK, UNREADABLE, REFUSED, TOO_LARGE, NOT_JSON = 200, 400, 403, 413, 415


class Question(NamedTuple):
    """What a page asks: the `number`-th state of a page; `start` is what it thinks the knobs turn."""

    state: dict[str, Any]
    page: str
    number: int


class _AnswerError(Exception):
    """A question that gets no timeline: a status, and why. What is wrong with a scenario is an answer too."""

    def __init__(self, status: int, told: list[Complaint]) -> None:
        self.status, self.told = status, told
        super().__init__(told[0].text if told else "")


def app(start: Start, port: int) -> Starlette:
    """The application of a server that listens at that port."""
    rooms = _Rooms(start)
    assets = [Route(path, _asset(*told), methods=["GET"]) for path, told in PAGE.items()]
    figure = [
        Route("/timeline.js", _text(script, "text/javascript"), methods=["GET"]),
        Route("/page.css", _text(style, "text/css"), methods=["GET"]),
    ]
    asked = [
        Route("/start", rooms.begin, methods=["GET"]),
        Route("/play", rooms.play, methods=["POST"]),
        *(Route(f"/download/{name}", rooms.download(name), methods=["POST"]) for name in DOWNLOADS),
    ]
    made = Starlette(routes=[*assets, *figure, *asked])
    made.add_middleware(_Guarded, port=port)
    return made


# --- files of the page ------------------------------------------------------------------------------------------------


def _asset(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    return _text(lambda: files("zerosim.playground").joinpath("page", name).read_text(encoding="utf-8"), kind)


def _text(content: Callable[[], str], kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def told(_: Request) -> Response:
        return Response(content(), media_type=kind)

    return told


# --- questions --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rooms:
    """The questions that can be asked of one start."""

    start: Start
    player: Player = field(init=False)
    newest: Newest = field(default_factory=Newest)
    thread: PlayThread = field(default_factory=PlayThread)

    def __post_init__(self) -> None:
        self.player = Player(self.start)

    async def begin(self, _: Request) -> Response:
        """Where the knobs stand at first, and what they are."""
        return _json(beginning(self.start))

    async def play(self, request: Request) -> Response:
        """The answer for a state."""
        return await self._answered(request, lambda played: _dumped(answer(played, self.start)), "application/json")

    def download(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        """A file of a state."""

        async def told(request: Request) -> Response:
            return await self._answered(
                request, lambda played: DOWNLOADS[name](played, self.start), "application/octet-stream"
            )

        return told

    async def _answered(self, request: Request, made: Callable[[Played], bytes], kind: str) -> Response:
        try:
            question = _question(await _body(request), self.start)
            self.newest.asks(question.page, question.number)
            content = await asyncio.wrap_future(self.thread.does(partial(self._made, question, made)))
        except SupersededError:
            return _json({"superseded": True})
        except _AnswerError as error:
            return _json({"wrong": [each._asdict() for each in error.told]}, error.status)
        return Response(content, media_type=kind)

    def _made(self, question: Question, made: Callable[[Played], bytes]) -> bytes:
        """In the thread: read, play, show."""

        def wanted() -> bool:
            return self.newest.wants(question.page, question.number)

        try:
            if not wanted():
                raise SupersededError
            state = read_state(question.state, self.start)
            with no_collection():
                return made(self.player.play(state, wanted))
        except InputError as error:
            raise _AnswerError(OK, complaints(error)) from None
        except ZerosimError as error:
            raise _AnswerError(OK, [Complaint("", str(error))]) from None


async def _body(request: Request) -> Any:
    """What was sent, as JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _refused(NOT_JSON, "content-type", "another", "application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise _refused(TOO_LARGE, "question", "more", f"at most {LARGEST} bytes")
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _refused(UNREADABLE, "question", "something else", "JSON") from None


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _question(data: Any, start: Start) -> Question:
    """The question in what was sent."""
    fields = data if isinstance(data, Mapping) else {}
    page, number = fields.get("page"), fields.get("number")
    if not (isinstance(page, str) and len(page) <= 64 and type(number) is int):
        raise _refused(UNREADABLE, "question", "none", "{start, state, page, number}")
    if fields.get("start") != start.digest:
        found = "the knobs of another scenario"
        expected = f"those of {start.name or 'the default'}: start `zerosim play` with the scenario of the link"
        raise _refused(OK, "link", found, expected)
    return Question(fields.get("state", {}), page, number)


def _refused(status: int, where: str, found: str, expected: str) -> _AnswerError:
    return _AnswerError(status, [Complaint("", str(Problem(where, "", found, expected)))])


def _json(value: Any, status: int = OK) -> Response:
    return Response(_dumped(value), status_code=status, media_type="application/json")


def _dumped(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


# --- who may ask ------------------------------------------------------------------------------------------------------


class _Guarded:
    """Refuses questions that are not from a page of this server, and says what browsers must not do with answers."""

    def __init__(self, inside: ASGIApp, port: int) -> None:
        self.inside = inside
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inside(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), said.encode()) for name, said in HEADERS.items()]
            await send(message)

        wrong = self._wrong(Request(scope))
        inside: ASGIApp = _json({"wrong": [{"control": "", "text": wrong}]}, REFUSED) if wrong else self.inside
        await inside(scope, receive, guarded)

    def _wrong(self, request: Request) -> str:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in self.hosts:
            return "this server answers to its own address only"
        if origin is not None and origin not in self.origins:
            return "this server answers to its own page only"
        return ""
