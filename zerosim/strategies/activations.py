"""Activations: what forward saves until backward has used it, the inputs of checkpointed blocks, working sets.

With `activation_checkpointing.cpu_checkpointing` the inputs of checkpointed blocks wait in host memory. Source:
DeepSpeed 0.19.8 runtime/activation_checkpointing/{checkpointing,offload_activations}.py: a side stream and pinned
buffers, kept from step to step. The newest input stays on the GPU; the one before it is copied down when the next
block's forward has been issued, and kept for the backward if it is the last to go. A copy back waits for nothing but
the copies before it, so it runs as far ahead as the host does. Through 0.19.5 both copies are plain `.to`, from and to
pageable memory: the host waits for each.
"""

from __future__ import annotations

from zerosim.step import COMPUTE, Transfer
from zerosim.strategies.builder import Builder
from zerosim.strategies.network import Network, Node

OFFLOAD = "offload"  # the side stream


class Activations:
    """Holds what forward saves until backward has used it, the input of checkpointed blocks, and working sets."""

    def __init__(self, builder: Builder, network: Network) -> None:
        self._builder = builder
        self._network = network
        self._saved: dict[Node, int] = {}
        blocks = [node for node in network.root.walk() if node.checkpointed]
        self._keepers = {leaf: block for block in blocks for leaf in block.walk() if leaf.kept}
        self._kept: dict[Node, list[int]] = {}  # by block, outputs that its checkpoint keeps, first made first
        self._flowing: int | None = None  # the output (forward) or gradient (backward) between two ops

    def enter(self, block: Node) -> None:
        """A checkpointed block keeps its input."""
        self._saved[block] = self._builder.acquire("block input", "activations", self._network.block_input)

    def leave_forward(self, block: Node) -> None:
        """The forward of a checkpointed block has been issued."""

    def recompute(self, block: Node) -> None:
        """A checkpointed block is about to run again."""

    def leave(self, block: Node) -> None:
        buffer = self._saved.pop(block, None)
        if buffer is not None:
            self._builder.release(buffer, COMPUTE)
        for output in self._kept.pop(block, ()):
            self._builder.release(output, COMPUTE)

    def taken(self, node: Node) -> None:
        """The output that was kept next is taken as if it had just been made: whoever reads it saves it, or nobody."""
        self._builder.release_after(self._kept[self._keepers[node]].pop(0), self._builder.next_op)

    def forward(self, node: Node, saving: bool) -> None:
        if saving:
            self._save(node)
        elif node in self._keepers:
            self._keep(node)
        elif node.work.output:
            self._flow("activation", node.work.output)

    def backward(self, node: Node) -> None:
        """Before its kernels: what was not saved yet (the leaf that stopped the recomputation), the gradient made."""
        if node not in self._saved:
            self._save(node)
        if node.work.output:
            self._flow("activation gradient", node.work.output)

    def done(self, node: Node) -> None:
        buffer = self._saved.pop(node, None)
        if buffer is not None:
            self._builder.release(buffer, COMPUTE)

    def rest(self) -> None:
        """Nothing flows any more: the end of a forward or backward."""
        if self._flowing is not None:
            self._builder.release(self._flowing, COMPUTE)
            self._flowing = None

    def _save(self, node: Node) -> None:
        if node.work.saved > 0:
            self._saved[node] = self._builder.acquire("saved activation", "activations", node.work.saved)

    def _keep(self, node: Node) -> None:
        """The output of a leaf waits for the recomputation of its block."""
        output = self._builder.acquire("kept output", "activations", node.work.output)
        self._kept.setdefault(self._keepers[node], []).append(output)
        if self._flowing is not None:
            self._builder.release_after(self._flowing, self._builder.next_op)
            self._flowing = None

    def _flow(self, name: str, size: float) -> None:
        previous, self._flowing = self._flowing, self._builder.acquire(name, "activations", size)
        if previous is not None:
            self._builder.release_after(previous, self._builder.next_op)


class HostActivations(Activations):
    """Inputs of checkpointed blocks are in host memory between the forward and the backward of their block."""

    def __init__(self, builder: Builder, network: Network) -> None:
        super().__init__(builder, network)
        self._newest: Node | None = None  # its input has not been copied
        self._copied: tuple[Node, int] | None = None  # the last copy down: its input is still on the GPU, too
        blocks = sum(node.checkpointed for node in network.root.walk())
        for _ in range(blocks - 1):
            builder.resident("block input in host memory", "activations", network.block_input, "dram", pinned=True)

    def leave_forward(self, block: Node) -> None:
        """The input before this block's goes down; the one before that is no longer needed on the GPU."""
        if self._copied is not None:
            node, copy = self._copied
            self._builder.release_after(self._saved.pop(node), copy)
            self._copied = None
        if self._newest is not None:
            self._builder.wait(OFFLOAD, COMPUTE)
            down = Transfer(self._network.block_input, "gpu", "dram")
            layer = self._newest.layer
            self._copied = self._newest, self._builder.copy(OFFLOAD, "copy block input to host", down, layer=layer)
        self._newest = block

    def recompute(self, block: Node) -> None:
        """The last input is there, the one before it too, once it has been copied; others come back."""
        if self._copied is not None and self._copied[0] is block:
            self._builder.wait_for(COMPUTE, [self._copied[1]])
        elif block not in self._saved:
            self.enter(block)
            up = Transfer(self._network.block_input, "dram", "gpu")
            copy = self._builder.copy(OFFLOAD, "copy block input to the GPU", up, layer=block.layer)
            self._builder.wait_for(COMPUTE, [copy])

    def leave(self, block: Node) -> None:
        super().leave(block)
        self._newest = None
        if self._copied is not None and self._copied[0] is block:
            self._copied = None


class BlockingHostActivations(Activations):
    """The same in older releases: down before the block's forward, up before it runs again."""

    def __init__(self, builder: Builder, network: Network) -> None:
        super().__init__(builder, network)
        self._in_host: dict[Node, int] = {}

    def enter(self, block: Node) -> None:
        size = self._network.block_input
        self._in_host[block] = self._builder.acquire("block input in host memory", "activations", size, "dram")
        down = Transfer(size, "gpu", "dram", pinned=False)
        self._builder.copy(COMPUTE, "copy block input to host", down, layer=block.layer)

    def recompute(self, block: Node) -> None:
        size = self._network.block_input
        self._saved[block] = self._builder.acquire("block input", "activations", size)
        up = Transfer(size, "dram", "gpu", pinned=False)
        self._builder.copy(COMPUTE, "copy block input to the GPU", up, layer=block.layer)

    def leave(self, block: Node) -> None:
        super().leave(block)
        if block in self._in_host:
            self._builder.release(self._in_host.pop(block), COMPUTE)
