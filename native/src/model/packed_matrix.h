// A weight matrix in the order in which the kernels read it.
#pragma once

#include "core/buffer.h"
#include "core/range.h"
#include "model/config.h"

namespace headway {

/// Rows of activations as a PackedMatrix wants them: quantised or float, padded to kPad.
class ActRows {
public:
    ActRows() = default;
    ActRows(const KernelSet& set, WeightFormat format, int num_rows, int width);

    float* floats(int row) const { return reinterpret_cast<float*>(values_.data()) + row * stride_; }
    QuantizedRow quantized(int row, int levels) const;
    const void* values() const { return values_.data(); }
    std::ptrdiff_t stride() const { return stride_; }
    const float* scales() const { return scales_.size() != 0 ? scales_.data() : nullptr; }
    const std::int32_t* offsets() const { return offsets_.size() != 0 ? offsets_.data() : nullptr; }

private:
    int act_bytes_ = 0;
    std::ptrdiff_t stride_ = 0;
    Array<std::uint8_t> values_;
    Array<float> scales_;
    Array<std::int32_t> offsets_;
};

/// num_outputs x num_inputs weights in panels of KernelSet::panel_width outputs, [panel][k / unroll][output][unroll];
/// int8 with one scale per output, or float32.
class PackedMatrix {
public:
    PackedMatrix() = default;
    /// Its weights lie in `arena`, which must outlive it.
    PackedMatrix(Arena& arena, const KernelSet& set, WeightFormat format, int num_outputs, int num_inputs);

    int num_outputs() const { return num_outputs_; }
    int num_panels() const { return num_panels_; }
    std::size_t num_bytes() const {
        return panel_bytes_ * static_cast<std::size_t>(num_panels_) + scales_.size() * sizeof(float);
    }

    /// Most levels that quantised inputs may have without overflowing an int32 sum, within the set's own cap.
    int input_levels() const { return input_levels_; }

    /// Rounds and stores the weights of one output. Different outputs may be set from different threads.
    void set_output(int output, const float* weights);
    void set_bias(int output, float bias);

    /// weights[output][0 .. num_inputs) as floats again; float32 only.
    void copy_output(int output, float* weights) const;

    /// out rows (+)= acts * weights^T for some rows and panels; out begins with row rows.begin.
    void multiply(const ActRows& acts, float* out, std::ptrdiff_t out_stride, Epilogue epilogue, Range rows,
                  Range panels) const;

private:
    const KernelSet* set_ = nullptr;
    WeightFormat format_ = WeightFormat::kFloat32;
    int num_outputs_ = 0;
    int num_inputs_ = 0;
    int num_panels_ = 0;
    int input_levels_ = 0;
    std::size_t panel_bytes_ = 0;
    std::uint8_t* panels_ = nullptr;
    Array<float> scales_;
    Array<float> bias_;
};

}  // namespace headway
