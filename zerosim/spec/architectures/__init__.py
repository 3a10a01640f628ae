"""Families of architectures: each turns a config.json into a tree of modules like Hugging Face's.

One function a `model_type`. A new family is a function in a module here and a row in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from zerosim.spec.architectures import bert, gpt, llama, opt, parallel, t5
from zerosim.spec.architectures.config import Config
from zerosim.spec.model import Model

FAMILIES: Mapping[str, Callable[[Config], Model]] = MappingProxyType(
    {
        "bert": bert.bert,
        "bloom": gpt.bloom,
        "falcon": parallel.falcon,
        "gemma": llama.gemma,
        "gemma2": llama.gemma2,
        "gemma3_text": llama.gemma3,
        "gpt2": gpt.gpt2,
        "gpt_neox": parallel.gpt_neox,
        "llama": llama.llama,
        "mistral": llama.llama,
        "mpt": gpt.mpt,
        "opt": opt.opt,
        "phi": parallel.phi,
        "phi3": llama.phi3,
        "qwen2": llama.qwen2,
        "qwen3": llama.qwen3,
        "stablelm": llama.stablelm,
        "t5": t5.t5,
    }
)
