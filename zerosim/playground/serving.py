"""Runs the server at a socket until it is interrupted."""

from __future__ import annotations

import socket
from contextlib import suppress

import uvicorn

from zerosim.playground.server import app
from zerosim.playground.start import Start

PATIENCE = 0  # seconds: who ends it waits for no answer


def server(start: Start, opened: socket.socket) -> uvicorn.Server:
    """A server for the port of a socket, silent."""
    config = uvicorn.Config(
        app(start, opened.getsockname()[1]),
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )
    return uvicorn.Server(config)


def serve(start: Start, opened: socket.socket) -> None:
    """Answers until Ctrl-C, which is the usual end and no error."""
    with suppress(KeyboardInterrupt):  # uvicorn raises it again once it has closed
        server(start, opened).run(sockets=[opened])
