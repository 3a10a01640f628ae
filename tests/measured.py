"""A table of made-up measurements for tests, in the columns of published ones; what a row does not say is NA."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

COLUMNS = (
    "id", "dataset", "quality", "model", "params", "n_layers", "hidden", "n_heads", "n_kv_heads", "ffn_hidden",
    "vocab", "seq_len", "gpu", "gpu_mem_gb", "n_gpus", "gpus_per_node", "intra_node_link", "inter_node_net",
    "inter_node_gbps_per_node", "host", "framework", "strategy", "strategy_raw", "tp", "pp", "offload_optimizer",
    "offload_param", "micro_batch_per_gpu", "grad_accum", "global_batch_seqs", "act_ckpt", "precision", "optimizer",
    "attn_kernel", "compile", "other_flags", "step_time_s", "tokens_per_s_per_gpu", "samples_per_s_total",
    "tflops_per_gpu", "tflops_def", "mfu", "hfu", "peak_mem_gb", "peak_mem_def", "fwd_s", "bwd_s", "opt_s",
    "comm_s", "outcome", "metric_other", "notes", "source", "confidence",
)  # fmt: skip
SMALL = {
    "id": "one", "dataset": "made-up", "quality": "A", "model": "GPT", "n_layers": "2", "hidden": "512",
    "n_heads": "8", "n_kv_heads": "8", "ffn_hidden": "2048", "vocab": "1000", "seq_len": "256",
    "gpu": "A100-SXM4-40GB", "gpu_mem_gb": "40", "n_gpus": "8", "gpus_per_node": "8",
    "intra_node_link": "NVLink/NVSwitch", "framework": "llm-foundry/composer + PyTorch FSDP1", "strategy": "ZeRO-3",
    "strategy_raw": "FULL_SHARD", "tp": "1", "pp": "1", "offload_optimizer": "no", "offload_param": "no",
    "micro_batch_per_gpu": "2", "grad_accum": "2", "global_batch_seqs": "32", "act_ckpt": "none",
    "precision": "amp_bf16", "optimizer": "adamw", "attn_kernel": "flash-attention v2", "compile": "no",
    "step_time_s": "0.05", "outcome": "ran", "source": "made up", "confidence": "exact-from-table",
}  # fmt: skip


def written(folder: Path, rows: Iterable[Mapping[str, str]]) -> Path:
    """The path of a table with these rows, each beside what `SMALL` says."""
    path = folder / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="NA", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**SMALL, **row} for row in rows)
    return path
