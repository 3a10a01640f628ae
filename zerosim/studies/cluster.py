"""Many questions, a cluster: what `processes` does, on the workers of a Dask scheduler.

Questions go out together, and answers come as they are ready. What a worker took with it Dask asks another; a question
that ends one worker after another is given up after a few (`distributed.scheduler.allowed-failures`), and is lost.
Workers read the files that a scenario names themselves, by the same paths; `ask` sees to it that they are the same.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from zerosim.errors import InputError, Problem
from zerosim.studies.processes import Lost

if TYPE_CHECKING:
    from distributed import Client, Future

Q = TypeVar("Q")
A = TypeVar("A")
OPTION = "--dask"
PATIENCE = 5  # seconds, after which a scheduler that does not answer is not there


@dataclass(frozen=True, slots=True)
class Cluster:
    """The workers of the scheduler at an address, such as tcp://10.0.0.1:8786."""

    address: str

    def answers(self, ask: Callable[[Q], A], questions: Sequence[Q]) -> Iterator[tuple[int, A | Lost]]:
        """The number of each question and its answer, in the order in which they are ready.

        A worker has one `ask` for all of its questions, so that `ask` may keep what neighbours share.
        """
        with self._connected() as client:
            from distributed import as_completed

            asker = client.submit(_itself, ask, pure=False)  # an answer like others: one that is lost is made again
            asked = client.map(_answer, questions, asker=asker, pure=False)
            number_of = {future.key: number for number, future in enumerate(asked)}
            try:
                for future in as_completed(asked, loop=client.loop):
                    yield number_of[future.key], _answer_of(future, self.address)
            finally:
                client.cancel(asked)

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        """The scheduler, with workers that answer as this process would."""
        try:
            from distributed import Client
        except ImportError:
            expected = "distributed, which speaks with Dask (pip install zerosim[dask])"
            raise InputError([Problem(OPTION, found="no distributed", expected=expected)]) from None
        with _quiet():
            try:
                _known(self.address)
                client = Client(self.address, timeout=PATIENCE, set_as_default=False)
            except (OSError, ValueError, TypeError) as error:
                raise InputError([self._unreachable(error)]) from None
            with client:
                self._check(client)
                yield client

    def _unreachable(self, error: Exception) -> Problem:
        found = f"no Dask scheduler at {self.address} within {PATIENCE} s"
        if isinstance(error, ValueError | TypeError):
            found = f'"{self.address}", which is no address ({error})'
        return Problem(OPTION, found=found, expected="the address that dask scheduler prints, as tcp://10.0.0.1:8786")

    def _check(self, client: Client) -> None:
        """Other releases may give other answers, and so may sums in another Python."""
        here, there = answering(), client.run(answering, on_error="return")
        if not there:
            expected = f"one, as by dask worker {self.address}"
            raise InputError([Problem(OPTION, found=f"no worker at {self.address}", expected=expected)])
        wrong = {worker: said for worker, said in there.items() if said != here}
        if wrong:
            raise InputError(
                Problem(OPTION, found=f"the worker {worker} with {_has(said)}", expected=f"{here}, as here")
                for worker, said in wrong.items()
            )


def _known(address: str) -> None:
    """ValueError where Dask knows no such address, before a client that cannot be closed is made of it; it would take
    an empty one for the wish to start a cluster here."""
    from distributed.comm.addressing import parse_address
    from distributed.comm.registry import get_backend

    if not address.strip():
        raise ValueError("it is empty")
    get_backend(parse_address(address)[0])


def answering() -> str:
    """Who answers in this process."""
    try:
        release = f"zerosim {version('zerosim')}"
    except PackageNotFoundError:
        release = "zerosim (not installed)"
    return f"{release} on Python {sys.version_info.major}.{sys.version_info.minor}"


def _has(said: Any) -> str:
    """What a worker has, or what it lacks."""
    return f"an error ({said})" if isinstance(said, BaseException) else str(said)


def _itself(ask: Callable[[Q], A]) -> Callable[[Q], A]:
    return ask


def _answer(question: Q, asker: Callable[[Q], A]) -> A:
    """What a worker does."""
    return asker(question)


def _answer_of(future: Future, address: str) -> Any:
    """What a worker says, or why none does."""
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker:
        return Lost("each worker that was at it was ended from outside")
    except CancelledError:
        return Lost(f"the Dask scheduler at {address} is gone")
    finally:
        future.release()


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask logs each connection that ends; what that means for a question is told as its answer."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
