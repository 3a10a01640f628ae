"""qwZ: weights are gathered in int8 blocks with fp32 scales, and widened where they arrive.

Source: DeepSpeed 0.19.8 runtime/zero/partition_parameters.py (`_all_gather_coalesced`, `_all_gather_sequential`,
AllGatherCoalescedHandle), csrc/quantization/{quantize,dequantize}.cu. Blocks and scales are two collectives. The
kernels read and write fp16, so other dtypes are cast before and after. Every kernel is bound by memory. Shards that are
kept in int8 (`zero_quantized_nontrainable_weights`) go as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.step import COMPUTE, HostCalls, Pass
from zerosim.strategies.builder import Builder
from zerosim.strategies.gathering import Full, Gathers, InFlight, Landed, Members
from zerosim.strategies.quantized import FP16, INT8, SCALE, Quantized, quantized


class QuantizedGathers(Gathers):
    """`stored`: parameters whose shards are in int8, each in blocks of its own."""

    def __init__(self, builder: Builder, dtype: str, numels: Sequence[int], lane: str, stored: frozenset[int]) -> None:
        super().__init__(builder, dtype, numels, lane)
        self.stored = stored
        self.narrow = dtype == "fp16"

    def start(self, members: Members) -> InFlight:
        build, group = self.builder, members.shards.group
        stored, own = members.parameters[0] in self.stored, self._own(members)
        arriving = build.acquire("gathered int8 blocks", "buffers", float(INT8 * members.whole))
        brought = members.shards.bring_up(members.parameters, self.lane)
        sent = self._concatenated(members, own, brought) if stored else self._quantized(members, own, brought)
        blocks = group.size * own.blocks
        scales = build.acquire("gathered scales", "buffers", float(SCALE * blocks))
        build.collective(
            self.lane, "all_gather", members.whole, "int8", group.name,
            name=members.name, asynchronous=True, gathers=members.parameters,
        )  # fmt: skip
        name = f"{members.name} (scales)"
        last = build.collective(self.lane, "all_gather", blocks, "fp32", group.name, name=name, asynchronous=True)
        self.free(sent, last)
        return InFlight(last, arriving, scales, blocks)

    def at_once(self, members: Members) -> None:
        """One parameter that stays gathered, from shards in int8: on the compute lane, into the memory that it has."""
        build, group, elements, shard = self.builder, members.shards.group, self.elements(members), self._own(members)
        blocks = group.size * shard.blocks
        arriving = build.acquire("gathered int8 blocks", "buffers", float(INT8 * members.whole + SCALE * blocks))
        name, gathers = members.name, members.parameters
        build.collective(COMPUTE, "all_gather", members.whole, "int8", group.name, name=name, gathers=gathers)
        build.collective(COMPUTE, "all_gather", blocks, "fp32", group.name, name=f"{name} (scales)")
        work = Pass(float((INT8 + FP16) * members.whole + SCALE * blocks), "stream")
        if not self.narrow:
            work = Pass(work.hbm_bytes + (FP16 + self.width) * elements, "stream", 2)
        build.launch(COMPUTE, "dequantize", work, HostCalls(kernels=work.kernels))
        build.release(arriving, COMPUTE)

    def _own(self, members: Members) -> Quantized:
        """My shards: quantized together, or each as it is kept."""
        if members.parameters[0] not in self.stored:
            return quantized(members.own)
        each = [quantized(members.shards.elements([p])) for p in members.parameters]
        return Quantized(members.own, sum(shard.blocks for shard in each))

    def _concatenated(self, members: Members, own: Quantized, brought: list[int]) -> list[int]:
        """What is sent of shards that are in int8."""
        if not members.several:
            return brought
        sent = self.builder.acquire("int8 shards", "buffers", own.bytes)
        self.free(brought, self.stream("concatenate int8 shards", 2 * own.bytes, 2))
        return [sent]

    def _quantized(self, members: Members, own: Quantized, brought: list[int]) -> list[int]:
        """What is sent: several shards are concatenated; cast to fp16; quantized."""
        build, read = self.builder, brought
        if members.several:
            read = [build.acquire("concatenated shards", "buffers", float(self.width * own.elements))]
            self.free(brought, self.stream("concatenate shards", 2 * self.width * own.elements))
        if not self.narrow:
            read.append(build.acquire("fp16 shards", "buffers", float(FP16 * own.elements)))
            self.stream("cast shards to fp16", (self.width + FP16) * own.elements)
        sent = build.acquire("int8 shards", "buffers", own.bytes)
        self.free(read, self.stream("quantize shards", FP16 * own.elements + own.bytes))
        return [sent]

    def land(self, flight: InFlight, members: Members, full: Full) -> Landed:
        build, several = self.builder, members.several
        elements = members.whole if several else self.elements(members)
        in_place = self.narrow and not several
        wide = [] if in_place else [build.acquire("widened blocks", "buffers", float(FP16 * elements))]
        landed = {p: full(p) for p in members.parameters} if in_place else {}
        last = self.stream("dequantize", (INT8 + FP16) * elements + SCALE * flight.blocks)
        self.free([flight.buffer, *([] if flight.scales is None else [flight.scales])], last)
        landed |= {p: full(p) for p in members.parameters if p not in landed}
        if several:
            last = self._assemble(members)
        elif not self.narrow:
            last = self.stream("cast parameter", (FP16 + self.width) * elements)
        self.free(wide, last)
        return landed

    def _assemble(self, members: Members) -> int:
        """Each parameter from the ranks' pieces, in fp16; then in its own dtype."""
        elements, count = self.elements(members), len(members.parameters)
        last = self.stream("assemble parameters", 2 * FP16 * elements, count)
        if not self.narrow:
            largest = max(self.numels[p] for p in members.parameters)
            piece = self.builder.acquire("fp16 parameter", "buffers", float(FP16 * largest))
            last = self.stream("cast parameters", (FP16 + self.width) * elements, count)
            self.free([piece], last)
        return last
