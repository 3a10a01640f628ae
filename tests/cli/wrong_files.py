"""Right files of every kind that the command reads, and what makes them wrong.

`WRONG`: what is replaced by what, and what is then said. `¦` marks where the mistake should be found, and is taken out.
"""

from __future__ import annotations

RIGHT = {
    "scenario.yaml": """\
title: small
topology: machine.yaml
model: config.json
training:
  sequence_length: 128
  micro_batch_size: 2
  precision: bf16
strategy:
  deepspeed: ds.json
""",
    "machine.yaml": """\
name: machine
node:
  count: 2
  gpus: {device: a100_sxm_80, count: 2}
  nvlink: {kind: switch, bandwidth: 300 GB/s}
  pcie: {generation: 4, switches: [{gpus: [0], nics: [0]}, {gpus: [1], socket: 1}]}
  sockets:
  - {device: epyc_7742, dram: {capacity: 1 TB}}
  - {device: epyc_7742, dram: {capacity: 1 TB}}
  nics: {count: 1, bandwidth: 200 Gbps, kind: infiniband}
fabric: {kind: fat_tree, leaf_nodes: 4}
overrides:
- {node: 1, nics: {bandwidth: 100 Gbps}}
- {gpu: "0.1", compute: 0.8}
""",
    "drawn.yaml": """\
name: drawn
devices:
- {name: a, kind: gpu, device: l4}
- {name: b, kind: gpu, device: l4}
- {name: cpu, kind: socket, cores: 16}
- {name: ram, kind: dram, capacity: 64 GB}
links:
- {from: a, to: cpu, bandwidth: 31.5 GB/s}
- {from: b, to: cpu, bandwidth: 31.5 GB/s}
- {from: cpu, to: ram, bandwidth: 80 GB/s, duplex: half}
""",
    "config.json": """\
{
  "model_type": "llama",
  "hidden_size": 256,
  "intermediate_size": 512,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "vocab_size": 1000
}
""",
    "ds.json": """\
{
  "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true,
    "reduce_bucket_size": 500000
  }
}
""",
    "reference.yaml": """\
DDP: {fits: true}
ZeRO-1: {peak_bytes: 47 GB, step_seconds: 5 s, relative_throughput: 1}
""",
    "network.yaml": """\
name: network
parameters:
- {name: wte.weight, shape: [1000, 64], tied: [head.weight]}
- {name: layers.0.qkv.weight, shape: [192, 64]}
- {name: layers.0.qkv.bias, shape: [192], numel: 192}
- {name: layers.0.out.weight, shape: [64, 64], kind: linear}
- {name: layers.0.norm.weight, shape: [64], block: layers.0}
heads: 4
""",
    "recording.json": """\
{
  "versions": {"torch": "2.13.0", "deepspeed": null},
  "config": {"strategy": "ddp", "ddp": {}},
  "model": {
    "params": [{"name": "a.weight", "shape": [8, 8], "numel": 64}],
    "modules": [
      {"name": "<root>", "cls": "Net", "params": [], "children": ["a"]},
      {"name": "a", "cls": "Linear", "params": ["weight"], "children": []}
    ]
  },
  "steps": [
    {"events": [
      {"m": "phase", "ph": "forward", "mb": 0},
      {"m": "F>", "mod": "<root>"}, {"m": "F>", "mod": "a"}, {"m": "F<", "mod": "a"}, {"m": "F<", "mod": "<root>"},
      {"m": "phase", "ph": "backward", "mb": 0},
      {"m": "B>", "mod": "a"}, {"m": "G", "mod": "a.weight"},
      {"op": "all_reduce", "ph": "backward", "mb": 0, "dtype": "f32", "nin": 64, "nout": 64, "gs": 2},
      {"m": "phase", "ph": "step"}
    ]}
  ]
}
""",
}
MARK = "¦"

WRONG = {
    "scenario.yaml": [
        ("title: small", "¦titel: small", 'titel: found unknown key "titel"; expected one of'),
        ("title: small", "title: ¦[small]", "title: found a list; expected text"),
        ("title: small", 'title: ¦"a\\nb"', 'title: found "a\\nb"; expected one line of text'),
        ("title: small", "title: small\n¦title: x", 'title: found the key "title" again; expected each key once'),
        ("title: small", "nodes: ¦0", "nodes: found 0; expected"),
        ("title: small", "nodes: ¦1.5", "nodes: found 1.5; expected a whole number"),
        ("title: small", "nodes: ¦99999999", "nodes: found 99999999; expected from 1 to 2 nodes"),
        ("title: small", "gpus: ¦99999999999999", "gpus: found 99999999999999; expected as many as"),
        ("machine.yaml", "¦dgx-a100-8O", 'topology: found "dgx-a100-8O"; expected a topology'),
        ("machine.yaml", "¦nowhere.yaml", 'topology: found "nowhere.yaml"; expected a file below this folder'),
        ("config.json", "¦lama-2-7b", 'model: found "lama-2-7b"; expected a model'),
        ("config.json", "{layers: 2, hidden: ¦7, heads: 2}", "model.hidden: found 7; expected a multiple of heads"),
        ("config.json", "{parameters: ¦many}", 'model.parameters: found "many"; expected a count such as "500m"'),
        ("config.json", "{parameters: ¦1e300}", "model.parameters: found"),
        ("128", "¦-128", "training.sequence_length: found -128; expected a whole number"),
        ("128", "¦.nan", "training.sequence_length: found nan; expected a whole number"),
        ("128", "¦.inf", "training.sequence_length: found inf; expected a whole number"),
        ("128", "¦1e308", "training.sequence_length: found"),
        ("128", "¦" + "9" * 5000, "training.sequence_length: found inf; expected a whole number"),
        ("128", "¦[[[[128]]]]", "training.sequence_length: found a list; expected a whole number"),
        ("_batch_size: 2", "_batch_size: 2\n  gradient_accumulation_steps: ¦9999999", "found 9999999; expected at"),
        ("bf16", "¦int4", 'training.precision: found "int4"; expected "fp32", "fp16" or "bf16"'),
        ("deepspeed: ds.json", "¦deepsped: ds.json", 'deepsped: found unknown key "deepsped"; expected one of'),
        ("deepspeed: ds.json", "deepspeed: ¦3", "strategy.deepspeed: found 3; expected a path or a mapping"),
        ("deepspeed: ds.json", "ddp: {bucket_cap_mb: ¦-1}", "strategy.ddp.bucket_cap_mb: found -1; expected"),
        ("deepspeed: ds.json", "ddp: {bucket_cap_mb: ¦.inf}", "strategy.ddp.bucket_cap_mb: found inf; expected"),
        ("training:", "training: ¦!!python/object:os.system", "found the tag tag:yaml.org,2002:python"),
        ("precision: bf16", "checkpoint_function: ¦megatron", 'found "megatron"; expected "torch" or "deepspeed"'),
        ("title: small", "launch: {¦bind_cores: true}", 'launch.bind_cores: found unknown key "bind_cores"; expected'),
        ("title: small", "launch: {launcher: ¦mpirun}", 'launch.launcher: found "mpirun"; expected "deepspeed" or'),
        ("title: small", "launch: {omp_num_threads: ¦-1}", "launch.omp_num_threads: found -1; expected"),
        ("title: small", "launch: ¦deepspeed", 'launch: found "deepspeed"; expected a mapping'),
        (
            "title: small", "launch: {launcher: torchrun, bind_cores_to_rank: ¦true}",
            "launch.bind_cores_to_rank: found true; expected false, or launcher: deepspeed; torchrun binds no cores",
        ),
        (
            "deepspeed: ds.json", "deepspeed: {zero_optimization: {stage: 3, offload_optimizer: {device: nvme}}}",
            "topology: found machine without NVMe drives; expected a topology whose nodes have NVMe drives, where "
            "strategy.deepspeed.zero_optimization.offload_optimizer.device is nvme",
        ),
    ],
    "machine.yaml": [
        ("300 GB/s", "¦300 GBs", 'node.nvlink.bandwidth: found "300 GBs"; expected a rate such as'),
        ("300 GB/s", "¦-1", "node.nvlink.bandwidth: found -1; expected a rate such as"),
        ("300 GB/s", "¦1e-320", "node.nvlink.bandwidth: found 1e-320; expected a rate of at least 1 MB/s"),
        ("300 GB/s", "¦1e308", "node.nvlink.bandwidth: found 1e+308; expected a number less than or equal to"),
        ("300 GB/s", "¦.nan", 'node.nvlink.bandwidth: found nan; expected a rate such as "25 GB/s", finite'),
        ("kind: switch", "¦knid: switch", 'node.nvlink.knid: found unknown key "knid"; expected one of'),
        ("kind: switch", "kind: pairs, pairs: [[0, 1, ¦0]]", "nvlink.pairs.0.2: found 0; expected at least 1 link"),
        ("kind: switch", "kind: pairs, pairs: [¦[0]]", "found a list of 1; expected a list of at least 2"),
        ("name: machine", "name: ¦7", "name: found 7; expected text"),
        ("name: machine", 'name: ¦""', 'name: found ""; expected text that is not empty'),
        ("count: 2\n", "count: ¦1000000000\n", "node.count: found 1000000000; expected a number less than"),
        ("count: 2}", "count: ¦100000000}", "node.gpus.count: found 100000000; expected"),
        ("a100_sxm_80", "¦a100_sxm80", 'node.gpus.device: found "a100_sxm80"; expected a GPU of the catalogue'),
        ("gpus: [1]", "gpus: [¦2]", "node.pcie.switches.1.gpus.0: found GPU 2; expected a GPU from 0 to 1"),
        ("1 TB", "¦1 TBB", 'node.sockets.0.dram.capacity: found "1 TBB"; expected a size such as'),
        ("count: 1, b", "count: ¦9999999, b", "node.nics.count: found 9999999; expected"),
        ("  nics: {count: 1, bandwidth: 200 Gbps, kind: infiniband}\n", "", "found NIC 0; expected no NIC"),
        ("fat_tree", "¦tree", 'fabric.kind: found "tree"; expected'),
        ("leaf_nodes: 4", "oversubscription: ¦.inf", "fabric.oversubscription: found inf; expected"),
        ("node: 1,", "node: ¦7,", "overrides.0.node: found node 7; expected a node from 0 to 1"),
        ('"0.1"', "¦0.1", "overrides.1.gpu: found 0.1; expected node and GPU as text"),
        ("0.8", "¦0", "overrides.1.compute: found 0; expected"),
        ("name: machine", "name: machine\n¦name: x", 'name: found the key "name" again; expected each key once'),
    ],
    "drawn.yaml": [
        ("31.5 GB/s", "¦31.5 GBs", 'links.0.bandwidth: found "31.5 GBs"; expected a rate such as'),
        ("31.5 GB/s", "¦0", "links.0.bandwidth: found 0; expected a rate of at least 1 MB/s"),
        ("31.5 GB/s", "¦.inf", "links.0.bandwidth: found inf; expected a rate such as"),
        ("kind: gpu", "kind: ¦gpuu", 'devices.0.kind: found "gpuu"; expected "gpu", '),
        ("device: l4", "device: ¦l5", 'devices.0.device: found "l5"; expected a GPU of the catalogue'),
        ("device: l4", "¦devise: l4", 'devices.0.devise: found unknown key "devise"; expected one of'),
        ("name: b", "name: ¦7", "devices.1.name: found 7; expected text"),
        ("name: a,", "name: a, node: ¦99999999999999,", "devices.0.node: found 99999999999999; expected"),
        ("capacity: 64 GB", "capacity: ¦-64 GB", 'devices.3.capacity: found "-64 GB"; expected a size'),
        ("cores: 16", "cores: ¦.nan", "devices.2.cores: found nan; expected a finite number"),
        ("to: cpu", "to: ¦cpuu", 'links.0.to: found "cpuu"; expected a device of the list; nearest "cpu"'),
        ("- {from: a, to: cpu", "- ¦{from: a, to: a", "links.0: found a link from a to itself; expected two devices"),
        ("- {from: a, to: cpu, bandwidth: 31.5 GB/s}\n", "", "found no route from 0.a to 0.b; expected links"),
        ("duplex: half", "duplex: ¦quarter", 'links.2.duplex: found "quarter"; expected "full", "half" or "simplex"'),
        ("devices:", "devices: ¦[]\nx:", "devices: found a list of 0; expected a list of at least 1"),
        ("name: drawn", "name: drawn\n¦node: {}", 'found unknown key "node"; expected one of devices, links, name'),
    ],
    "config.json": [
        ("256", "¦-256", "hidden_size: found -256; expected a whole number from 1"),
        ("256", "¦256.5", "hidden_size: found 256.5; expected a whole number"),
        ("256", '¦"wide"', 'hidden_size: found "wide"; expected a whole number'),
        ("256", "¦NaN", "hidden_size: found nan; expected a whole number"),
        ("256", "¦1e999", "hidden_size: found inf; expected a whole number"),
        ("256", "¦" + "9" * 5000, "hidden_size: found inf; expected a whole number"),
        ("256", "¦[256]", "hidden_size: found a list; expected a whole number"),
        ('"hidden_size": 256,', "", "hidden_size: found nothing; expected a whole number"),
        ('"hidden_size": 256', '"hidden_size": 256, ¦"hidden_size": 1', 'found the key "hidden_size" again; expected'),
        ('"num_hidden_layers": 2', '"num_hidden_layers": ¦1000000000', "num_hidden_layers: found 1000000000; expected"),
        ('"llama"', '¦"lama"', 'model_type: found "lama", an architecture that is not modelled; expected one of'),
        ('"llama"', "¦7", "model_type: found 7, an architecture that is not modelled; expected one of"),
        ('"num_attention_heads": 4', '"num_attention_heads": 3', "hidden_size: found 256; expected a multiple of"),
        ('"vocab_size"', '¦"text_config": {}, "vocab_size"', "found a model of several parts (text_config); expected"),
        ('"vocab_size": 1000', '"vocab_size": 1000,', "found a syntax error (expecting property name"),
    ],
    "ds.json": [
        ('"stage": 2', '"stage": ¦4', "zero_optimization.stage: found 4; expected 0, 1, 2 or 3"),
        ('"stage": 2', '"stage": ¦' + "9" * 400, "zero_optimization.stage: found 999"),
        ('"stage": 2', '"stage": ¦null', "zero_optimization.stage: found null; expected 0, 1, 2 or 3"),
        ('"overlap_comm"', '¦"overlap_com"', '.overlap_com: found unknown key "overlap_com"; expected'),
        ("500000", "¦-1", "zero_optimization.reduce_bucket_size: found -1; expected an integer, 0 or more"),
        ("500000", '¦"5OOm"', 'zero_optimization.reduce_bucket_size: found "5OOm"; expected an integer'),
        ("500000", "¦" + "9" * 30, "zero_optimization.reduce_bucket_size: found"),
        ('"train_micro_batch_size_per_gpu": 2', '"train_batch_size": ¦7', "train_batch_size: found 7; expected"),
        ("gpu\": 2", 'gpu": ¦0', "train_micro_batch_size_per_gpu: found 0; expected an integer, 1 or more"),
        ("gpu\": 2", 'gpu": ¦3', "train_micro_batch_size_per_gpu: found 3; expected 2, as training.micro_batch_size"),
        ("gpu\": 2", 'gpu": 2, "optimizer": {"type": ¦"Adamm"}', 'type: found "Adamm"; expected an optimizer'),
        ('{"enabled": true}', "¦3", "bf16: found 3; expected a mapping such as {enabled: true}"),
        ('{"enabled": true}', '{¦"enable": true}', 'bf16.enable: found unknown key "enable"; expected'),
        ('"bf16": {"enabled": true}', '"bf16": {}, ¦"bf16": {}', 'found the key "bf16" again; expected each key once'),
        ('"bf16": {', '"bf16" {', "found a syntax error (expecting"),
        ('"stage": 2', '"stage": 2, ¦"a\\nb": 1', 'found unknown key "a\\nb"; expected a key of zero_optimization'),
        ('"stage": 2', '"stage": 2, "offload_optimizer": {"device": ¦"gpu"}', 'device: found "gpu"; expected none'),
        ('"stage": 2', '"stage": 2, "offload_optimizer": {¦"devise": "cpu"}', "nearest device"),
        ('"stage": 2', '"stage": 2, "offload_optimizer": ¦"cpu"', 'offload_optimizer: found "cpu"; expected a mapping'),
        ('"stage": 2', '"stage": 3, "offload_optimizer": {"ratio": ¦2}', "ratio: found 2; expected a number from 0"),
        ('"stage": 2', '"stage": 3, "offload_param": {"buffer_size": ¦-1}', "buffer_size: found -1; expected an int"),
        ('"stage": 2', '"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": ¦0.5}', "expected 1, or stage 3"),
        (
            '"zero_optimization": {',
            '"optimizer": {"type": ¦"Lamb"}, "zero_optimization": {"offload_optimizer": {"device": "cpu"},',
            'optimizer.type: found "Lamb"; expected Adam, AdamW, Lion or Adagrad where the optimizer is offloaded',
        ),
        (
            '"stage": 2',
            '"stage": 3, "offload_optimizer": {"device": "nvme", "pipeline_read": true, "buffer_count": ¦2}',
            "offload_optimizer.buffer_count: found 2; expected at least 4",
        ),
        (
            '"zero_optimization": {\n    "stage": 2',
            '"aio": {"block_size": ¦"1 MB"}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}',
            'aio.block_size: found "1 MB"; expected an integer, 1 or more',
        ),
    ],
    "reference.yaml": [
        ("47 GB", "¦47 GBB", 'ZeRO-1.peak_bytes: found "47 GBB"; expected a size such as'),
        ("47 GB", "¦-47 GB", 'ZeRO-1.peak_bytes: found "-47 GB"; expected a size'),
        ("47 GB", "¦0", "ZeRO-1.peak_bytes: found 0; expected a number greater than 0"),
        ("5 s", "¦.nan", "ZeRO-1.step_seconds: found nan; expected a time"),
        ("5 s", "¦.inf", "ZeRO-1.step_seconds: found inf; expected a time"),
        ("throughput: 1", "throughput: ¦.nan", "ZeRO-1.relative_throughput: found nan; expected"),
        ("throughput: 1", "throughput: ¦-1", "ZeRO-1.relative_throughput: found -1; expected"),
        ("throughput: 1", "throughput: ¦fast", 'ZeRO-1.relative_throughput: found "fast"; expected a number'),
        ("fits: true", "fits: ¦perhaps", 'DDP.fits: found "perhaps"; expected true or false'),
        ("fits: true", "¦fit: true", 'DDP.fit: found unknown key "fit"; expected one of'),
        ("ZeRO-1:", "¦FSDP FULLSHARD:", 'FSDP FULLSHARD: found unknown rung "FSDP FULLSHARD"; expected one of one GPU'),
        ("ZeRO-1:", "¦zero-1:", 'zero-1: found unknown rung "zero-1"; expected one of one GPU, DDP'),
        ("{fits: true}", "¦[1]", "DDP: found a list; expected a mapping"),
        ("ZeRO-1:", "¦DDP:", 'DDP: found the key "DDP" again; expected each key once'),
    ],
    "network.yaml": [
        ("[1000, 64]", "¦[1000, 0]", "parameters.0.shape: found [1000, 0]; expected sizes from 1"),
        ("[1000, 64]", "¦1000", "parameters.0.shape: found 1000; expected a list"),
        ("shape: [1000, 64]", "¦shap: [1000, 64]", 'parameters.0.shap: found unknown key "shap"; expected one of'),
        ("numel: 192", "numel: ¦191", "parameters.2.numel: found 191; expected 192, as shape says"),
        ("name: layers.0.out.weight", "name: ¦wte.weight", '"wte.weight" again; expected each name once'),
        ("kind: linear", "kind: ¦lineal", 'parameters.3.kind: found "lineal"; expected "linear"'),
        ("block: layers.0", "block: ¦layers.1", 'parameters.4.block: found "layers.1"; expected a module that holds'),
        ("heads: 4", "heads: 4\nkv_heads: ¦3", "kv_heads: found 3; expected a divisor of heads (4)"),
        ("heads: 4", "kv_heads: ¦4", "kv_heads: found 4; expected heads beside it"),
        ("heads: 4", "calls: [wte, layers.0, ¦heed]", 'calls.2: found "heed"; expected a module that has parameters'),
        ("heads: 4", "calls: ¦[wte, layers.0]", 'calls: found 2 calls; expected every module that has parameters'),
        ("parameters:", "¦parametrs:", 'parametrs: found unknown key "parametrs"; expected one of'),
    ],
    "recording.json": [
        ('"model": {', '"models": {', "model: found nothing; expected a value"),
        ('"config": {"strategy": "ddp", "ddp": {}}', '"config": 3', "config: found 3; expected a mapping"),
        ('[8, 8]', '["8", "x"]', 'model.params.0.shape.1: found "x"; expected a whole number'),
        ("[8, 8]", "[-8, 8]", "model.params.0.shape.0: found -8; expected a number greater than or equal to 0"),
        ('"dtype": "f32", ', "", "steps.0.events.8: found a mapping; expected dtype (f64, f32"),
        ('"nin": 64', '"nin": "many"', 'steps.0.events.8.nin: found "many"; expected a whole number'),
        ('"gs": 2', '"gs": 2, "gs": 2', 'gs: found the key "gs" again; expected each key once'),
        ('"steps": [', '"steps": [], "stops": [', "steps: found a list of 0; expected a list of at least 1"),
        ('"gs": 2}', '"gs": ¦}', "found a syntax error (expecting value); expected JSON"),
    ],
}  # fmt: skip
