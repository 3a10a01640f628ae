"""What kernels take of a GPU: matrix products by tiles and waves, fused attention, memory-bound passes.

Rules: an op's time alone is exactly what its formula says; its flow takes SMs in proportion to its FLOP and HBM in
proportion to its bytes, so that a collective which holds SMs, or a copy which reads HBM, slows it. Nothing here knows
of layers or of other ops. Constants: catalogue groups `gemm`, `attention`, `memory`.
"""

from __future__ import annotations

import math

from zerosim.catalog import constant, constants
from zerosim.costs.site import Site
from zerosim.resources import Demand, Use
from zerosim.step import DTYPE_BYTES, Attention, Matmul, Pass


def peak(site: Site, dtype: str) -> float:
    """Dense FLOP/s at a dtype; that of fp32 where the GPU has none (bf16 on V100 and T4 is computed so). Where it was
    measured what kernels reach, so many times that: their fractions of it are then those of the run."""
    peaks = site.gpu.peak_flops
    known = peaks.get(dtype) or peaks.get("fp32") or site.peak[1] / site.device.compute
    return known * site.device.compute * site.gpu.arithmetic


def matmul(work: Matmul, site: Site) -> Demand:
    """Products one after the other, each as long as its slower side, arithmetic or memory."""
    arithmetic = memory = total = moved = 0.0
    for shape in work.shapes:
        computes, size = _product(shape, work.dtype, site), _operands(shape, work.dtype)
        loads = size / (site.gpu.stream_efficiency * site.gpu.memory_bandwidth)
        arithmetic, memory, total = arithmetic + computes, memory + loads, total + max(computes, loads)
        moved += size
    latency = len(work.shapes) * constant("gemm.t0_us") * 1e-6
    bound = arithmetic >= memory  # the side that is slower over all products fills the time of both
    sm = _sm(site, work.flops, total if bound else arithmetic)
    return Demand(latency, (*sm, *_hbm(site, moved, memory if bound else total)))


def _product(shape: tuple[int, int, int, int], dtype: str, site: Site) -> float:
    """Seconds of arithmetic: waves of 256 x 128 output tiles over the SMs, at the best rate found for big products.

    The last wave is partly idle (`wave_soft` 1) or half so with persistent kernels; each tile has a prologue and an
    epilogue worth `k0` steps of its main loop. 5 % mean error on 13 published A100 products (COOKBOOK). Thin products
    have kernels with tiles as thin, down to the 16 rows and columns of a tensor-core instruction. However well a shape
    suits them, products that follow one another all through a step draw more than the board's power and are clocked
    down (`sustained`): a search for the best shape does not see that.
    """
    batch, m, k, n = shape
    rows, columns = _tile("gemm.tile_m", m), _tile("gemm.tile_n", n)
    tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
    best, sustained = _reached(site, dtype)
    flops, rate = 2.0 * batch * m * k * n, peak(site, dtype)
    if not flops:
        return 0.0
    shortest = min(
        _waves(tiles * parts, site) * 2 * rows * columns * (_depth(k, parts) + _prologue(site)) / (best * rate)
        + _sums(parts, batch * m * n, site)
        for parts in range(1, max(1, site.gpu.sms // tiles) + 1)
    )
    return max(shortest, flops / (sustained * rate))


def _waves(tiles: int, site: Site) -> float:
    """Tiles times SMs, a last wave that is not full counted in part or whole."""
    each = tiles / site.gpu.sms
    return site.gpu.sms * max(1.0, each + constant(f"gemm.wave_soft.{_era(site)}") * (math.ceil(each) - each))


def _prologue(site: Site) -> float:
    return constant(f"gemm.k0.{_era(site)}")


def _era(site: Site) -> str:
    return "sm90_plus" if site.gpu.persistent_kernels else "sm80_and_older"


def _depth(k: int, parts: int) -> float:
    """Of a part, where the depth of a product is cut (split-K) since its output tiles are too few for the SMs: of the
    gradients of a narrow layer's weights, say, which are deep by all tokens of a micro-batch."""
    return k if parts == 1 else max(k / parts, constant("gemm.split_depth"))


def _sums(parts: int, elements: int, site: Site) -> float:
    """Seconds in which the fp32 sums of the parts are written and read again."""
    if parts == 1:
        return 0.0
    return 2 * parts * DTYPE_BYTES["fp32"] * elements / (site.gpu.stream_efficiency * site.gpu.memory_bandwidth)


def _reached(site: Site, dtype: str) -> tuple[float, float]:
    """Shares of the peak: the best that was found, and what is held all through a step. Plain fp32 runs without the
    tensor cores, below the limit of the power."""
    if dtype == "fp32" or not site.gpu.peak_flops.get(dtype):
        return site.gpu.fp32_efficiency, site.gpu.fp32_efficiency
    return site.gpu.matmul_efficiency, min(site.gpu.sustained, site.gpu.matmul_efficiency)


def _tile(name: str, extent: int) -> float:
    return min(constant(name), max(16, 16 * math.ceil(extent / 16)))


def _operands(shape: tuple[int, int, int, int], dtype: str) -> float:
    batch, m, k, n = shape
    return float(batch * DTYPE_BYTES[dtype] * (m * k + k * n + m * n))


def attention(work: Attention, site: Site) -> Demand:
    """Fused attention: a fraction of the peak that grows with the sequence, rate = fraction x peak x s / (s + s0)."""
    way = "backward" if work.backward else "forward"
    kernel = _kernel(work.kernel, site)
    best = constant(f"attention.{kernel}.{way}.{site.gpu.architecture}") * peak(site, work.dtype)
    rate = best * work.keys / (work.keys + constant(f"attention.{kernel}.half_seq"))
    rows = work.batch * work.heads * work.head_dim * DTYPE_BYTES[work.dtype]
    tensors = 2 if work.backward else 1  # each of q, o and k, v, and its gradient
    moved = float(2 * tensors * rows * (work.queries + work.keys))
    loads = moved / (site.gpu.stream_efficiency * site.gpu.memory_bandwidth)
    return Demand(constant("gemm.t0_us") * 1e-6, (*_sm(site, work.flops, work.flops / rate), *_hbm(site, moved, loads)))


def _kernel(wanted: str, site: Site) -> str:
    """The kernel of the catalogue, that of FlashAttention-2 where there is none of the wanted generation."""
    return wanted if site.gpu.architecture in constants(f"attention.{wanted}.forward") else "flash"


def memory_pass(work: Pass, site: Site) -> Demand:
    """Memory-bound kernels: bytes at the fraction of HBM that their kind reaches, and no less than a gap for each."""
    gpu = site.gpu
    efficiency = gpu.stream_efficiency if work.flavour == "stream" else constant(f"memory.{work.flavour}_efficiency")
    flow = work.hbm_bytes / (efficiency * gpu.memory_bandwidth)
    gap = work.kernels * constant("memory.kernel_gap_us") * 1e-6
    return Demand(max(0.0, gap - flow), _hbm(site, work.hbm_bytes, flow))


def _sm(site: Site, flops: float, seconds: float) -> tuple[Use, ...]:
    return (Use(site.resource("sm"), flops, flops / (site.peak[1] * seconds)),) if flops and seconds else ()


def _hbm(site: Site, moved: float, seconds: float) -> tuple[Use, ...]:
    rate = site.gpu.memory_bandwidth
    return (Use(site.resource("hbm"), moved, moved / (rate * seconds)),) if moved and seconds else ()
