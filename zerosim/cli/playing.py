"""The verb `play`: the local page on which knobs are turned. It opens the port, says where, and waits for Ctrl-C.

The page is an extra of its own (starlette, uvicorn); without it the verb says how to get it.
"""

from __future__ import annotations

import socket
import sys
import threading
import webbrowser
from importlib.util import find_spec

import click

from zerosim.cli.printing import WRONG_INPUT, Verb, changes_option
from zerosim.errors import InputError, Problem

HOST = "127.0.0.1"  # nobody else's: a page that plays what it is asked is no service for others
USUAL, HIGHEST = 8000, 65_535
NEEDED = ("starlette", "uvicorn")


@click.command(cls=Verb)
@click.argument("scenario", required=False)
@changes_option
@click.option("--port", type=click.IntRange(0, HIGHEST), help=f"0 is any that is free; by default {USUAL} if it is.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
def play(scenario: str | None, changes: tuple[str, ...], port: int | None, no_open: bool) -> None:
    """Turn knobs on a local page and watch the timeline.

    The page is for this machine alone. Without SCENARIO it starts with Llama-2-7B on two DGX A100, ZeRO-3. Ctrl-C ends
    it.
    """
    if any(find_spec(name) is None for name in NEEDED):
        click.echo("zerosim play needs starlette and uvicorn: pip install 'zerosim[play]'", err=True)
        sys.exit(WRONG_INPUT)
    from zerosim.playground.start import begin

    start = begin(scenario, changes)
    with _listening(port) as opened:
        address = f"http://{HOST}:{opened.getsockname()[1]}/"
        click.echo(f"{start.scenario.title}: {address} (Ctrl-C ends it)")
        sys.stdout.flush()
        if not no_open:
            _open(address)
        from zerosim.playground.serving import serve

        serve(start, opened)


def _listening(port: int | None) -> socket.socket:
    """A socket that listens; by default at the usual port, or any where that is taken."""
    try:
        return _bound(USUAL if port is None else port)
    except OSError as error:
        if port is None:
            return _bound(0)
        found = f"{port}: {(error.strerror or 'an error').lower()}"
        raise InputError([Problem("--port", "", found, "a free port, or 0 for any")]) from None


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def _open(address: str) -> None:
    """In a thread, as some browsers return only when they end; not in one that would take over the terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    if type(browser) is not webbrowser.GenericBrowser:
        threading.Thread(target=browser.open, args=(address,), daemon=True).start()
