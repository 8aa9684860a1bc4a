#include "model/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace headway {

ActRows::ActRows(const KernelSet& set, WeightFormat format, int num_rows, int width)
    : act_bytes_(format == WeightFormat::kInt8 ? set.act_bytes : static_cast<int>(sizeof(float))),
      stride_(static_cast<std::ptrdiff_t>(round_up(static_cast<std::size_t>(width), kPad))) {
    const std::size_t rows = static_cast<std::size_t>(num_rows);
    values_ = Array<std::uint8_t>(rows * static_cast<std::size_t>(stride_) * static_cast<std::size_t>(act_bytes_));
    if (format == WeightFormat::kInt8) {
        scales_ = Array<float>(rows);
        offsets_ = Array<std::int32_t>(rows);
    }
}

QuantizedRow ActRows::quantized(int row, int levels) const {
    const std::size_t i = static_cast<std::size_t>(row);
    return {values_.data() + row * stride_ * act_bytes_, scales_.data() + i, offsets_.data() + i, levels};
}

PackedMatrix::PackedMatrix(Arena& arena, const KernelSet& set, WeightFormat format, int num_outputs, int num_inputs)
    : set_(&set), format_(format), num_outputs_(num_outputs), num_inputs_(num_inputs) {
    const std::size_t width = static_cast<std::size_t>(set.panel_width);
    const std::size_t padded_inputs = round_up(static_cast<std::size_t>(num_inputs), kPad);
    const std::size_t weight_bytes = format == WeightFormat::kInt8 ? 1 : sizeof(float);
    num_panels_ = static_cast<int>((static_cast<std::size_t>(num_outputs) + width - 1) / width);
    panel_bytes_ = padded_inputs * width * weight_bytes;
    const std::size_t num_bytes = checked_product(panel_bytes_, static_cast<std::size_t>(num_panels_));
    panels_ = arena.take(num_bytes);
    bias_ = Array<float>();
    if (format == WeightFormat::kInt8) {
        scales_ = Array<float>(width * static_cast<std::size_t>(num_panels_));
        constexpr long kLargestSum = 0x7FFFFFFF;
        input_levels_ =
            static_cast<int>(std::min<long>(set.act_levels, kLargestSum / 127 / static_cast<long>(padded_inputs)));
        if (set.weight_offset != 0) std::memset(panels_, set.weight_offset, num_bytes);
    }
}

void PackedMatrix::set_output(int output, const float* weights) {
    const int width = set_->panel_width;
    std::uint8_t* panel = panels_ + static_cast<std::size_t>(output / width) * panel_bytes_;
    const int column = output % width;
    if (format_ == WeightFormat::kFloat32) {
        float* to = reinterpret_cast<float*>(panel) + column;
        for (int k = 0; k < num_inputs_; ++k) to[k * width] = weights[k];
        return;
    }
    float top = 1e-20f;
    for (int k = 0; k < num_inputs_; ++k) top = std::max(top, std::fabs(weights[k]));
    scales_[static_cast<std::size_t>(output)] = top / 127.0f;
    const float inverse = 127.0f / top;
    const int unroll = set_->unroll;
    std::uint8_t* to = panel + column * unroll;
    for (int k = 0; k < num_inputs_; k += unroll, to += width * unroll) {
        const int count = std::min(unroll, num_inputs_ - k);
        for (int i = 0; i < count; ++i) {
            to[i] = static_cast<std::uint8_t>(std::lrintf(weights[k + i] * inverse) + set_->weight_offset);
        }
    }
}

void PackedMatrix::set_bias(int output, float bias) {
    bias_.at_least(static_cast<std::size_t>(num_panels_) * static_cast<std::size_t>(set_->panel_width));
    bias_[static_cast<std::size_t>(output)] = bias;
}

void PackedMatrix::copy_output(int output, float* weights) const {
    const int width = set_->panel_width;
    const std::uint8_t* panel = panels_ + static_cast<std::size_t>(output / width) * panel_bytes_;
    const float* from = reinterpret_cast<const float*>(panel) + output % width;
    for (int k = 0; k < num_inputs_; ++k) weights[k] = from[k * width];
}

void PackedMatrix::multiply(const ActRows& acts, float* out, std::ptrdiff_t out_stride, Epilogue epilogue, Range rows,
                            Range panels) const {
    const bool quantized = format_ == WeightFormat::kInt8;
    const int padded_inputs = static_cast<int>(round_up(static_cast<std::size_t>(num_inputs_), kPad));
    const GemmArgs args{
        .acts = acts.values(),
        .act_stride = acts.stride(),
        .act_scales = acts.scales(),
        .act_offsets = acts.offsets(),
        .weights = panels_,
        .panel_bytes = panel_bytes_,
        .num_steps = quantized ? padded_inputs / set_->unroll : padded_inputs,
        .scales = scales_.data(),
        .bias = bias_.size() != 0 ? bias_.data() : nullptr,
        .out = out,
        .out_stride = out_stride,
        .num_outputs = num_outputs_,
        .row_begin = rows.begin,
        .row_end = rows.end,
        .panel_begin = panels.begin,
        .panel_end = panels.end,
        .epilogue = epilogue,
    };
    (quantized ? set_->gemm_int8 : set_->gemm_float32)(args);
}

}  // namespace headway
