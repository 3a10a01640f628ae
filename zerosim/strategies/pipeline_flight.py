"""A stage with several micro-batches in flight: the order of `pipeline_schedule`, and what it holds meanwhile.

Source: torch 2.13 distributed/pipelining/{schedules,stage,_backward}.py. A stage has a buffer for everything that it
will receive in a step, made once and kept (`_RecvInfo`); it keeps its output from the forward of a micro-batch to the
end of its backward (`fwd_cache`), and a gradient that it sent until it has waited for the send and the next is there.
At the end gradients are divided by the number of micro-batches (`scale_grads`). Autocast surrounds the whole schedule,
so weights are cast once a step and kept to its end. A batched call runs on the communicator of all stages in torch and
on that of the pair here: a stage waits for it at once, so nothing of its own could be in its way there.
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import Pipeline
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, CollectiveKind
from zerosim.strategies.activations import Activations
from zerosim.strategies.events import Event
from zerosim.strategies.pipeline_schedule import Call, Compute, Message, actions
from zerosim.strategies.pipeline_stage import Stage


class Pipelined(Stage):
    """GPipe or 1F1B. What is kept by micro-batch: activations, outputs, gradients of inputs."""

    def __init__(
        self, config: Pipeline, model: Model, training: Training, number: int, replicas: int, tied: frozenset[str]
    ) -> None:
        super().__init__(config, model, training, number, replicas, tied)
        assert config.schedule != "naive"
        self.plan = tuple(actions(config.schedule, number, config.stages, training.gradient_accumulation_steps))
        self.flights: dict[int, Activations] = {}
        self.outputs: dict[int, int] = {}
        self.input_gradients: dict[int, int] = {}
        self.places: list[int] = []  # the buffers for received activations
        self.sends: list[int] = []  # ops that nobody has waited for
        self.sent: list[int] = []  # gradients whose sends have been issued

    def prepare(self) -> None:
        super().prepare()
        size, micro_batches = self.network.block_input, self.last_micro_batch + 1
        if self.number > 0:
            self.places = [self.builder.resident("receive buffer", "buffers", size) for _ in range(micro_batches)]
        if self.number < self.last:
            self.builder.resident("receive buffers of gradients", "buffers", micro_batches * size)

    # --- the schedule -------------------------------------------------------------------------------------------------

    def micro_steps(self) -> None:
        for action in self.plan:
            if isinstance(action, Compute):
                self._compute(action)
            elif isinstance(action, Call):
                self._communicate(action)
            else:
                self._settle()
        self._end()

    def _compute(self, action: Compute) -> None:
        self._at(action.phase == "forward", action.micro_batch)
        if action.phase == "forward":
            self.activations = self.flights[action.micro_batch] = Activations(self.builder, self.network)
            self._play(self.forward_events)
            if self.number < self.last:
                self.outputs[action.micro_batch] = self._hold("stage output")
        else:
            self.activations = self.flights.pop(action.micro_batch)
            self._play(self.backward_events)
            self._went_back(action.micro_batch)

    def _went_back(self, micro_batch: int) -> None:
        """What was kept for the backward goes; what it made for the stage before is there."""
        if self.number < self.last:
            self.builder.release(self.outputs.pop(micro_batch), COMPUTE)
        if self.number > 0:
            self.builder.acquire_again(self.places[micro_batch])
            self.input_gradients[micro_batch] = self._hold("gradient of the input")

    def _hold(self, name: str) -> int:
        return self.builder.acquire(name, "activations", self.network.block_input)

    def _communicate(self, call: Call) -> None:
        last = call.messages[-1]  # what is received, if anything is
        self._at(last.what == "activation", last.micro_batch)
        pair = self.number if last.ahead else self.number - 1
        kind: CollectiveKind = "exchange" if len(call.messages) > 1 else "send_recv"
        name = ", ".join(f"{'send' if each.sent else 'receive'} {each.what}" for each in call.messages)
        number = self.call(kind, pair, name, asynchronous=last.sent)
        if last.sent:
            self.sends.append(number)
        for message in call.messages:
            self._moved(message, number)

    def _moved(self, message: Message, number: int) -> None:
        """A received activation counts as what the forward saves, or as a block's input, until its backward is over."""
        if message.what == "gradient" and message.sent:
            self.sent.append(self.input_gradients.pop(message.micro_batch))
        elif message.what == "activation" and not message.sent:
            self.builder.release_after(self.places[message.micro_batch], number)

    def _settle(self) -> None:
        self.builder.wait_for(COMPUTE, self.sends)
        for buffer in self.sent:
            self.builder.release(buffer, COMPUTE)
        self.sends, self.sent = [], []

    def _at(self, forward: bool, micro_batch: int) -> None:
        self.builder.phase = "forward" if forward else "backward"
        self.micro_batch = self.builder.micro_batch = micro_batch

    # --- modules and gradients ----------------------------------------------------------------------------------------

    def forget(self, event: Event) -> None:
        """Casts stay: another micro-batch uses them."""

    def _end(self) -> None:
        """After the last backward."""
        for buffer in self.casts.values():
            self.builder.release(buffer, COMPUTE)
        self.casts.clear()
        if self.shards is None and self.last_micro_batch > 0 and self.gradients:
            self.elementwise(COMPUTE, "scale gradients", 2.0 * self.master * self.trainable, len(self.gradients))
        self.reduce()

    def agree(self) -> None:
        self.flag_overflow()
