"""What can be wrong with a file that should be a trace, and how it is told; what kernels' names say."""

import gzip
import json
from pathlib import Path

import pytest

from tests.profiled import ADAM, BACK, FLASH, GEMM, NORM, REDUCE, document, kernel, three_steps, write
from zerosim.errors import InputError
from zerosim.measured import read_trace
from zerosim.spec.profile_file import is_trace
from zerosim.spec.profile_kernels import Way, brief, collective_name, is_communication, kernel_kind, way

ROOT = Path(__file__).parents[2]
WHOLE = json.dumps(document(three_steps()))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "found an empty file"),
        ("<html>", 'found "<html>"'),
        ("5", 'found "5"'),
        ('{"traceEvents": [{"ph": "X"', ": found the end of the file within the JSON: it is cut off"),
        (WHOLE[:700], "1:701: found the end of the file within the JSON: it is cut off"),
        (WHOLE[:-1], "found the end of the file"),
        ('{"traceEvents": [{"ph": nix}]}', "1:25: found Expecting value"),
        ('{"traceEvents": [{} {}]}', "found an event without a comma before it"),
        ('{"traceEvents" []}', "found"),
        ('{"title": "a scenario"}', 'found an object with "title"; expected a profiler trace'),
        ("{}", "found an object with nothing in it"),
        ('{"traceEvents": []}', "found no GPU events (kernel, gpu_memcpy, gpu_memset), and no others"),
        ('{"traceEvents": [{"ph": "X", "name": "a", "ts": 0, "dur": 1}]}', "memset); expected a trace with the GPU's"),
        ('{"traceEvents": ' + "[" * 100_000, "found a value nested too deeply"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, content: str, found: str) -> None:
    file = write(tmp_path / "t.json", content)
    with pytest.raises(InputError) as refused:
        read_trace(file)
    assert found in str(refused.value)
    assert str(refused.value).startswith(str(file))


def test_broken_packed_files(tmp_path: Path) -> None:
    packed = gzip.compress(WHOLE.encode())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "broken.json.gz").write_bytes(packed[:40] + b"\xff" * 400)
    with pytest.raises(InputError, match="found a gzip file that is cut off"):
        read_trace(tmp_path / "cut.json.gz")
    with pytest.raises(InputError, match=r"found a broken gzip file \("):
        read_trace(tmp_path / "broken.json.gz")
    with pytest.raises(InputError, match=r"found no such file"):
        read_trace(tmp_path / "missing.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found a folder without traces"):
        read_trace(tmp_path / "empty")


def test_every_form_of_a_trace_gives_the_same(tmp_path: Path) -> None:
    """Packed or not, indented, with a byte order mark, a list, one without its end; told by content, not by name."""
    events = json.dumps(three_steps())
    forms = {
        "plain.json": WHOLE, "packed.json.gz": WHOLE, "no_name": WHOLE, "list.json": events, "open.json": events[:-1],
        "comma.json": events[:-1] + ",\n", "marked.json": "\ufeff" + WHOLE,
        "lines.json": json.dumps(document(three_steps()), indent=1),
    }  # fmt: skip
    files = [write(tmp_path / name, content) for name, content in forms.items()]
    assert all(map(is_trace, files))
    parts = {read_trace(file).summary().breakdown for file in files}
    assert len(parts) == 1


def test_scenarios_are_no_traces() -> None:
    files = [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "scenarios").rglob("*.json"), *ROOT.glob("topologies/*")]
    assert files
    assert not any(map(is_trace, files))
    assert not is_trace(ROOT / "nothing")


def test_letters_that_are_no_utf8_lose_only_themselves(tmp_path: Path) -> None:
    text = json.dumps(document([kernel("gemm_X", 0, 10, 1)])).encode().replace(b"gemm_X", b"gemm_\xff")
    (tmp_path / "t.json").write_bytes(text)
    assert read_trace(tmp_path / "t.json").summary().kernels["matmul"].count == 1


# --- names -----------------------------------------------------------------------------------------------------------

NAMES = {
    GEMM: "matmul", BACK: "matmul", FLASH: "attention", NORM: "reduction", ADAM: "optimizer",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)": "matmul",
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<X> > >": "attention",
    "nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NNN": "matmul",
    "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasSplitKParams<float>)": "matmul",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)": "attention",
    "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS": "attention",
    "attn_fwd.kd": "attention",
    "Cijk_Alik_Bljk_HHS_BH_MT64x64x16": "matmul",
    "void cudnn::ops::nchwToNhwcKernel<float>": "elementwise",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc": "matmul",
    "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >": "elementwise",
    "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<normal_and>": "elementwise",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<T>": "elementwise",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t>>": "reduction",
    "void (anonymous namespace)::softmax_warp_forward<float, c10::BFloat16, 9, false>": "reduction",
    "triton_red_fused_native_layer_norm_3": "reduction",
    "triton_tem_fused_mm_5": "matmul",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor_mode<float> >(int)": "optimizer",
    "gemm fwd layers.3.softmax": "matmul",  # of a simulated step: its first word says it
    "elementwise bwd layers.0.norm": "elementwise",
    "secret_sauce": "unknown",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_a_kernel_is_what_its_name_says(name: str, kind: str) -> None:
    assert kernel_kind(name) == kind
    assert not is_communication(name)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        (REDUCE, "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_bf16_RING_LL(x)", "reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "send_recv"),
        ("void two_shot_all_reduce_kernel<c10::BFloat16>", "all_reduce"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
    ],
)
def test_a_collective_is_what_its_kernel_says(name: str, collective: str | None) -> None:
    assert is_communication(name)
    assert collective_name(name) == collective
    assert collective_name("ncclDevKernel_Generic", "", "all_to_allv") == "all_to_all"


def test_ways_of_copies_and_short_names() -> None:
    assert way("Memcpy HtoD (Pinned -> Device)") == Way("dram", "gpu", True)
    assert way("Memcpy DtoH (Device -> Pageable)") == Way("gpu", "dram", False)
    assert way("CopyDeviceToHost") == Way("gpu", "dram", True)
    assert way("Memcpy DtoD (Device -> Device)") == way("Memcpy PtoP (Device -> Device)") == Way("gpu", "gpu", True)
    assert brief(NORM) == "vectorized_layer_norm_kernel"
    assert brief(FLASH) == "flash_fwd_kernel"
