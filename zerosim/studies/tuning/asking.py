"""Questions about points, answered by several processes and kept in a journal; each is asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zerosim.studies.journal import Answer, Journal
from zerosim.studies.processes import Lost, answers
from zerosim.studies.tuning.looking import ERROR, Looking, Question

FEW = 4  # questions that take no longer than another process takes to start
Told = Callable[[int, int], None]


@dataclass(slots=True)
class Asking:
    """`told` hears how many questions are answered, of how many so far. `lost` are answers that a process took with it
    when it was ended from outside: they are not in the journal, so that the next run asks again."""

    looking: Looking
    journal: Journal
    digest: str
    processes: int
    told: Told
    lost: dict[str, Answer] = field(default_factory=dict)
    done: int = 0

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers, in order."""
        keys = [question.key(self.digest) for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if not self._known(key)}
        of = self.done + len(new)
        names = list(new)
        processes = min(self.processes, len(new) // FEW or 1)
        for number, said in answers(self.looking, list(new.values()), processes):
            if isinstance(said, Lost):
                self.lost[names[number]] = {ERROR: said.why}
            else:
                self.journal.add(names[number], said)
            self.done += 1
            self.told(self.done, of)
        return [self.lost.get(key) or self.journal.known[key] for key in keys]

    def _known(self, key: str) -> bool:
        return key in self.lost or key in self.journal.known
