"""The columns of a table of measurements: what each holds, in which unit, with an example."""

from __future__ import annotations

from typing import NamedTuple

from zerosim.spec.measured_numbers import (
    GBPS,
    GPUS,
    MEMORY,
    NUMBER,
    SAMPLE_RATE,
    SHARE,
    TFLOPS,
    TIME,
    TOKEN_RATE,
    TOKENS,
    WHOLE,
    Form,
)

NEEDED = ("id", "model", "gpu", "n_gpus", "framework", "strategy")  # without these nothing can be built


class Column(NamedTuple):
    """`field`: of a Row, "" where other code reads the text. `form`: of its number, None for words."""

    name: str
    field: str
    form: Form | None
    unit: str
    example: str
    about: str


COLUMNS = (
    Column("id", "", None, "", "run-7", "name of the row, each its own"),
    Column("dataset", "study", None, "", "my-cluster", "study: where the row is from"),
    Column("quality", "quality", None, "", "A", "A: all is known of it; B: something is assumed"),
    Column("model", "model", None, "", "Llama-2 7B", "its words tell the family"),
    Column("params", "parameters", NUMBER, "", "6.74B", "parameters"),
    Column("n_layers", "layers", WHOLE, "", "32", "blocks"),
    Column("hidden", "hidden", WHOLE, "", "4096", "hidden size"),
    Column("n_heads", "heads", WHOLE, "", "32", "attention heads"),
    Column("n_kv_heads", "kv_heads", WHOLE, "", "8", "heads of keys and values"),
    Column("ffn_hidden", "ffn", WHOLE, "", "11008", "width of the feed-forward"),
    Column("vocab", "vocabulary", WHOLE, "", "32000", "entries of the vocabulary"),
    Column("seq_len", "sequence_length", TOKENS, "tokens", "4096", "of a sequence; 4K is 4096"),
    Column("gpu", "gpu", None, "", "A100-SXM4-80GB", "as nvidia-smi names it, or its usual name"),
    Column("gpu_mem_gb", "gpu_memory_gb", MEMORY, "GiB", "80", "memory of a GPU as it is sold"),
    Column("n_gpus", "gpus", GPUS, "", "16", "GPUs of the run"),
    Column("gpus_per_node", "gpus_per_node", WHOLE, "", "8", "GPUs of a server"),
    Column("intra_node_link", "intra_node_link", None, "", "NVLink/NVSwitch", "what joins the GPUs of a server"),
    Column("inter_node_net", "network", None, "", "InfiniBand, 8 x 200Gbps", "what joins the servers"),
    Column("inter_node_gbps_per_node", "network_gbps", GBPS, "Gb/s", "1600", "of a server, all its ports"),
    Column("host", "host", None, "", "DGX A100, 1TB DRAM", "server, CPU and its memory"),
    Column("framework", "framework", None, "", "PyTorch FSDP2 2.4", "program and runtime"),
    Column("strategy", "strategy", None, "", "ZeRO-3", "DDP, ZeRO-1, ZeRO-2, ZeRO-3, FULL_SHARD, ..."),
    Column("strategy_raw", "strategy_raw", None, "", "FULL_SHARD", "the same in the source's words"),
    Column("tp", "tensor_parallel", WHOLE, "", "1", "tensor parallel size; only 1 is played"),
    Column("pp", "pipeline_parallel", WHOLE, "", "1", "stages of a pipeline"),
    Column("offload_optimizer", "offload_optimizer", None, "", "cpu", "no, cpu or nvme"),
    Column("offload_param", "offload_param", None, "", "no", "no, cpu or nvme"),
    Column("micro_batch_per_gpu", "micro_batch", WHOLE, "sequences", "4", "or tokens: 2K tokens"),
    Column("grad_accum", "accumulation", WHOLE, "", "8", "micro-steps of a step"),
    Column("global_batch_seqs", "global_batch", WHOLE, "sequences", "512", "of a step, all GPUs; or tokens: 4M tokens"),
    Column("act_ckpt", "checkpointing", None, "", "full", "none, full, selective, every other layer, per-op"),
    Column("precision", "precision", None, "", "bf16", "bf16, fp16, fp32, TF32, with autocast, pure"),
    Column("optimizer", "optimizer", None, "", "AdamW (fused)", "AdamW, Adam, LAMB, SGD, Lion, Adagrad"),
    Column("attn_kernel", "attention", None, "", "flash-attention 2", "flash-attention 1 to 3, SDPA, unfused"),
    Column("compile", "compiled", None, "", "no", "torch.compile: yes or no"),
    Column("other_flags", "flags", None, "", "bucket_cap_mb=25", "settings that change the step"),
    Column("step_time_s", "step_seconds", TIME, "s", "1.25", "of a step with all its micro-steps"),
    Column("tokens_per_s_per_gpu", "tokens_per_second_per_gpu", TOKEN_RATE, "tokens/s", "3100", "of one GPU"),
    Column("samples_per_s_total", "samples_per_second", SAMPLE_RATE, "sequences/s", "12.1", "of all GPUs"),
    Column("tflops_per_gpu", "tflops_per_gpu", TFLOPS, "TFLOP/s", "160", "of one GPU"),
    Column("tflops_def", "tflops_definition", None, "", "6N + attention, no recompute", "how they were counted"),
    Column("mfu", "mfu", SHARE, "% or share", "51.2", "model FLOPs over the peak"),
    Column("hfu", "hfu", SHARE, "% or share", "66.0", "with what is computed again"),
    Column("peak_mem_gb", "peak_memory_gb", MEMORY, "GiB", "61.4", "peak of a GPU"),
    Column("peak_mem_def", "peak_memory_definition", None, "", "GiB peak reserved", "allocated, reserved, nvidia-smi"),
    Column("fwd_s", "forward_seconds", TIME, "s", "0.40", "forward of a step"),
    Column("bwd_s", "backward_seconds", TIME, "s", "0.80", "backward of a step"),
    Column("opt_s", "optimizer_seconds", TIME, "s", "0.05", "update of a step"),
    Column("comm_s", "", None, "s", "0.2", "not compared"),
    Column("outcome", "outcome", None, "", "ran", "ran or OOM"),
    Column("metric_other", "", None, "", "reserved_gib=33.8", "other numbers by name, between semicolons"),
    Column("notes", "notes", None, "", "", "anything"),
    Column("confidence", "confidence", None, "", "exact-from-table", "or read-from-figure, read-from-text"),
    Column("source", "", None, "", "my log", "where the numbers stand"),
    Column("source_url", "", None, "", "", "its address"),
)
BY_NAME = {column.name: column for column in COLUMNS}
