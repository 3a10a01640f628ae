"""What the name of a kernel, of a collective and of a copy says."""

import pytest

from tests.profiled import ADAM, BACK, FLASH, GEMM, NORM, REDUCE
from zerosim.spec.profile_kernels import Way, brief, collective_name, is_communication, kernel_kind, way

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
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::Half, long, unsigned int, 2, 2>": "elementwise",
    "void at::native::(anonymous namespace)::compute_grad_weight<float>": "elementwise",
    "void at::native::(anonymous namespace)::reflection_pad2d_out_kernel<float>": "elementwise",
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>": "elementwise",
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<1, float>": "matmul",
    "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*)": "reduction",
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float> > >": "reduction",
    "void lamb_cuda_kernel_part1<float, float, 512>": "optimizer",
    "kOptimizerStatic8bit2State": "optimizer",
    "_rms_norm_forward_kernel": "reduction",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor_mode<float> >(int)": "optimizer",
    "gemm fwd layers.3.softmax": "matmul",  # of a simulated step: its first word says it
    "elementwise bwd layers.0.norm": "elementwise",
    "secret_sauce": "unknown",
    # a word within another word is none, and a type of CUTLASS makes no matmul
    "pad_adamantium": "unknown",
    "madam_kernel": "unknown",
    "reindexer": "unknown",
    "poolside_kernel": "unknown",
    "compute_everything": "unknown",
    "void secret_sauce<cutlass::bfloat16_t>": "unknown",
    # TorchInductor: its heuristic decides, whatever was fused
    "triton_poi_fused_convolution_relu_3": "elementwise",
    "triton_poi_fused__scaled_dot_product_flash_attention_2": "elementwise",
    "triton_poi_fused_native_layer_norm_backward_1": "elementwise",
    "triton_poi_fused__softmax_4": "elementwise",
    "model_triton_poi_fused_add_0": "elementwise",
    "triton_red_fused_native_layer_norm_3": "reduction",
    "triton_red_fused_convolution_backward_7": "reduction",
    "triton_per_fused_add_mm_2": "reduction",
    "triton_spl_fused_cumsum_0": "reduction",
    "triton_tem_fused_mm_5": "matmul",
    "triton_tem_fused__to_copy_addmm_gelu_t_view_9": "matmul",
    "triton_tem_fused__scaled_mm_1": "matmul",
    "triton_tem_fused_convolution_2": "matmul",
    "triton_tem_fused_flex_attention_backward_split_transpose_1": "attention",
    "triton_tem_fused_0": "unknown",
    "triton_for_fused_0": "unknown",
    "triton_unk_fused_mean_1": "unknown",
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
