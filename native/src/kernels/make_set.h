// Gathers the functions compiled in this translation unit into a table.
#pragma once

#include "kernels/append.h"
#include "kernels/attend.h"
#include "kernels/gemm.h"
#include "kernels/rows.h"

namespace headway {
namespace {

constexpr KernelSet make_kernel_set(const char* name) {
    return {
        .name = name,
        .panel_width = kPanelVectors * Vec::kLanes,
        .unroll = MatInt8::kUnroll,
        .act_bytes = sizeof(MatInt8::Act),
        .weight_offset = MatInt8::kWeightOffset,
        .act_levels = MatInt8::kActLevels,
        .prob_levels = MatInt8::kProbLevels,
        .row_tile = kRowTile,
        .gemm_int8 = gemm<MatInt8>,
        .gemm_float32 = gemm<MatFloat>,
        .rms_norm = rms_norm,
        .rms_norm_quantize = rms_norm_quantize,
        .quantize = quantize,
        .silu_mul = silu_mul,
        .silu_mul_quantize = silu_mul_quantize,
        .append = append,
        .attend = attend,
        .attend_scratch = attend_scratch,
        .argmax = argmax,
        .products_int8 = products<MatInt8>,
        .products_float32 = products<MatFloat>,
    };
}

}  // namespace
}  // namespace headway
