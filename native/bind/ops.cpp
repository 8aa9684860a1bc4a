// Single operations of a kernel set, for parity tests against the NumPy reference.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "bind/arrays.h"
#include "kernels/registry.h"
#include "model/model.h"

namespace headway {
namespace {

/// One kernel set, one operation at a time, on the caller's thread. Inputs are copied into padded rows.
class Ops {
public:
    explicit Ops(const std::string& kernel_set) : set_(find_kernel_set(kernel_set)) {}

    int act_levels(int num_inputs) const { return PackedMatrix(set_, WeightFormat::kInt8, 1, num_inputs).input_levels(); }

    void linear(Floats2 x, Floats2 weight, Floats1 bias, bool quantized, int rows_at_once, OutFloats2 out) const;
    void rms_norm(Floats2 x, Floats1 weight, float eps, OutFloats2 out) const;
    void quantize(Floats2 x, int levels, OutFloats2 out) const;
    void rms_norm_quantize(Floats2 x, float eps, int levels, OutFloats2 out) const;
    void silu_mul(Floats2 gate_up, OutFloats2 out) const;
    void silu_mul_quantize(Floats2 gate_up, int hadamard, int levels, OutFloats2 out) const;
    void attention(Floats3 q, Floats3 k, Floats3 v, Ints1 block_table, int num_blocks, int block_size, int dtype,
                   int rows_at_once, OutFloats3 out) const;
    int argmax(Floats1 x) const { return set_.argmax(x.data(), extent(x, 0)); }

private:
    void read_back(const QuantizedRow& row, float* out, int n) const;
    const KernelSet& set_;
};

Array<float> padded_row(const float* from, int n) {
    Array<float> row(round_up(static_cast<std::size_t>(n), kPad) + kPad);
    std::memcpy(row.data(), from, sizeof(float) * static_cast<std::size_t>(n));
    return row;
}

void Ops::read_back(const QuantizedRow& row, float* out, int n) const {
    for (int i = 0; i < n; ++i) {
        const int value = set_.act_bytes == 2 ? static_cast<const std::int16_t*>(row.values)[i]
                                              : static_cast<const std::int8_t*>(row.values)[i];
        out[i] = static_cast<float>(value) * *row.scale;
    }
}

void Ops::linear(Floats2 x, Floats2 weight, Floats1 bias, bool quantized, int rows_at_once, OutFloats2 out) const {
    const int rows = extent(x, 0), inputs = extent(x, 1), outputs = extent(weight, 0);
    require(extent(weight, 1) == inputs && extent(out, 0) == rows && extent(out, 1) == outputs, "shapes do not match");
    require(bias.shape(0) == 0 || extent(bias, 0) == outputs, "one bias per output, or none");
    require(rows_at_once >= 1, "rows_at_once must be positive");
    const WeightFormat format = quantized ? WeightFormat::kInt8 : WeightFormat::kFloat32;
    PackedMatrix matrix(set_, format, outputs, inputs);
    for (int n = 0; n < outputs; ++n) matrix.set_output(n, weight.data() + static_cast<std::ptrdiff_t>(n) * inputs);
    for (int n = 0; n < extent(bias, 0); ++n) matrix.set_bias(n, bias.data()[n]);
    ActRows acts(set_, format, rows, inputs);
    for (int r = 0; r < rows; ++r) {
        const Array<float> row = padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * inputs, inputs);
        if (quantized) {
            set_.quantize(row.data(), inputs, acts.quantized(r, matrix.input_levels()));
        } else {
            std::memcpy(acts.floats(r), row.data(), sizeof(float) * static_cast<std::size_t>(inputs));
        }
    }
    for (int r = 0; r < rows; r += rows_at_once) {
        matrix.multiply(acts, out.data() + static_cast<std::ptrdiff_t>(r) * outputs, outputs, Epilogue::kStore,
                        {r, std::min(rows, r + rows_at_once)}, {0, matrix.num_panels()});
    }
}

void Ops::rms_norm(Floats2 x, Floats1 weight, float eps, OutFloats2 out) const {
    const int n = extent(x, 1);
    const Array<float> w = padded_row(weight.data(), n);
    for (int r = 0; r < extent(x, 0); ++r) {
        const Array<float> row = padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * n, n);
        set_.rms_norm(row.data(), w.data(), n, eps, row.data());
        std::memcpy(out.data() + static_cast<std::ptrdiff_t>(r) * n, row.data(), sizeof(float) * static_cast<std::size_t>(n));
    }
}

void Ops::quantize(Floats2 x, int levels, OutFloats2 out) const {
    const int n = extent(x, 1);
    ActRows acts(set_, WeightFormat::kInt8, 1, n);
    for (int r = 0; r < extent(x, 0); ++r) {
        set_.quantize(padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * n, n).data(), n, acts.quantized(0, levels));
        read_back(acts.quantized(0, levels), out.data() + static_cast<std::ptrdiff_t>(r) * n, n);
    }
}

void Ops::rms_norm_quantize(Floats2 x, float eps, int levels, OutFloats2 out) const {
    const int n = extent(x, 1);
    ActRows acts(set_, WeightFormat::kInt8, 1, n);
    for (int r = 0; r < extent(x, 0); ++r) {
        const Array<float> row = padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * n, n);
        set_.rms_norm_quantize(row.data(), n, eps, acts.quantized(0, levels));
        read_back(acts.quantized(0, levels), out.data() + static_cast<std::ptrdiff_t>(r) * n, n);
    }
}

void Ops::silu_mul(Floats2 gate_up, OutFloats2 out) const {
    const int n = extent(out, 1);
    require(extent(gate_up, 1) == 2 * n, "gate_up must be twice as wide as out");
    Array<float> result(round_up(static_cast<std::size_t>(n), kPad));
    for (int r = 0; r < extent(out, 0); ++r) {
        const Array<float> row = padded_row(gate_up.data() + static_cast<std::ptrdiff_t>(r) * 2 * n, 2 * n);
        set_.silu_mul(row.data(), n, result.data());
        std::memcpy(out.data() + static_cast<std::ptrdiff_t>(r) * n, result.data(), sizeof(float) * static_cast<std::size_t>(n));
    }
}

void Ops::silu_mul_quantize(Floats2 gate_up, int hadamard, int levels, OutFloats2 out) const {
    const int n = extent(out, 1);
    require(extent(gate_up, 1) == 2 * n, "gate_up must be twice as wide as out");
    ActRows acts(set_, WeightFormat::kInt8, 1, n);
    Array<float> scratch(round_up(static_cast<std::size_t>(n), kPad));
    for (int r = 0; r < extent(out, 0); ++r) {
        const Array<float> row = padded_row(gate_up.data() + static_cast<std::ptrdiff_t>(r) * 2 * n, 2 * n);
        set_.silu_mul_quantize(row.data(), n, hadamard, acts.quantized(0, levels), scratch.data());
        read_back(acts.quantized(0, levels), out.data() + static_cast<std::ptrdiff_t>(r) * n, n);
    }
}

/// The last T of C tokens attend to all before them: q is T x H x D, k and v are C x K x D. Spare slots hold NaN.
void Ops::attention(Floats3 q, Floats3 k, Floats3 v, Ints1 block_table, int num_blocks, int block_size, int dtype,
                    int rows_at_once, OutFloats3 out) const {
    const int num_rows = extent(q, 0), heads = extent(q, 1), dim = extent(q, 2);
    const int context = extent(k, 0), kv_heads = extent(k, 1), shared = heads / kv_heads;
    ModelConfig config;
    config.vocab_size = config.hidden_size = config.ffn_size = config.num_layers = 1;
    config.num_heads = heads;
    config.num_kv_heads = kv_heads;
    config.head_dim = dim;
    config.rope_frequencies = {0.0};
    KvCache cache(config, static_cast<KvDtype>(dtype), block_size, num_blocks, 0);
    std::vector<int> all(static_cast<std::size_t>(num_blocks));
    for (int i = 0; i < num_blocks; ++i) all[static_cast<std::size_t>(i)] = i;
    cache.poison(all);
    const KvView kv = cache.layer(0);
    const int padded = kv.padded_dim;
    const std::size_t row_bytes = static_cast<std::size_t>(heads * padded) * sizeof(float);
    Array<std::uint8_t> queries(row_bytes * static_cast<std::size_t>(context));
    Array<float> scales(static_cast<std::size_t>(context * heads)), scratch(static_cast<std::size_t>(3 * padded));
    Array<std::int32_t> offsets(static_cast<std::size_t>(context * heads));
    std::vector<float> qkv(static_cast<std::size_t>((heads + 2 * kv_heads) * dim));
    const float one = 1.0f, zero = 0.0f;
    for (int t = 0; t < context; ++t) {
        const int row = t - (context - num_rows);
        if (row >= 0) std::copy_n(q.data() + row * heads * dim, heads * dim, qkv.begin());
        std::copy_n(k.data() + t * kv_heads * dim, kv_heads * dim, qkv.begin() + heads * dim);
        std::copy_n(v.data() + t * kv_heads * dim, kv_heads * dim, qkv.begin() + (heads + kv_heads) * dim);
        set_.append({.qkv = qkv.data(), .num_heads = heads, .num_kv_heads = kv_heads, .rope_half = 1, .cos = &one,
                     .sin = &zero, .q_norm = nullptr, .k_norm = nullptr, .norm_eps = 1e-5f,
                     .query_scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(dim)),
                     .query_levels = std::min(set_.prob_levels / 2, 0x7FFFFFFF / 127 / padded), .kv = &kv,
                     .block = block_table.data()[t / block_size], .slot = t % block_size,
                     .queries = queries.data() + static_cast<std::size_t>(t) * row_bytes,
                     .query_scales = scales.data() + t * heads, .query_offsets = offsets.data() + t * heads,
                     .scratch = scratch.data()});
    }
    const bool quantized = kv.dtype == KvDtype::kInt8;
    const std::size_t head_bytes = static_cast<std::size_t>(padded) * (quantized ? static_cast<std::size_t>(set_.act_bytes) : 4);
    const int most = rows_at_once * shared;
    Array<std::uint8_t> some(head_bytes * static_cast<std::size_t>(most)), work(set_.attend_scratch(most, padded));
    Array<float> some_scales(static_cast<std::size_t>(most)), result(static_cast<std::size_t>(most * padded));
    Array<std::int32_t> some_offsets(static_cast<std::size_t>(most));
    std::vector<int> lengths(static_cast<std::size_t>(most));
    for (int first = 0; first < num_rows; first += rows_at_once) {
        const int count = std::min(rows_at_once, num_rows - first);
        for (int h = 0; h < kv_heads; ++h) {
            for (int i = 0; i < count * shared; ++i) {
                const int token = context - num_rows + first + i / shared, head = h * shared + i % shared;
                const std::size_t from = static_cast<std::size_t>(token * heads + head), to = static_cast<std::size_t>(i);
                std::memcpy(some.data() + to * head_bytes,
                            queries.data() + static_cast<std::size_t>(token) * row_bytes +
                                static_cast<std::size_t>(head) * head_bytes, head_bytes);
                some_scales[to] = scales[from];
                some_offsets[to] = offsets[from];
                lengths[to] = token + 1;
            }
            set_.attend({.kv = &kv, .block_table = block_table.data(), .kv_head = h, .num_rows = count * shared,
                         .queries = some.data(), .query_scales = quantized ? some_scales.data() : nullptr,
                         .query_offsets = quantized ? some_offsets.data() : nullptr, .lengths = lengths.data(),
                         .prob_levels = set_.prob_levels, .out = result.data(), .scratch = work.data()});
            for (int i = 0; i < count * shared; ++i) {
                float* to = out.data() + ((first + i / shared) * heads + h * shared + i % shared) * dim;
                std::copy_n(result.data() + i * padded, dim, to);
            }
        }
    }
}

}  // namespace

void bind_ops(nb::module_& m) {
    nb::class_<Ops>(m, "Ops")
        .def(nb::init<const std::string&>(), nb::arg("kernel_set"))
        .def("act_levels", &Ops::act_levels)
        .def("linear", &Ops::linear)
        .def("rms_norm", &Ops::rms_norm)
        .def("quantize", &Ops::quantize)
        .def("rms_norm_quantize", &Ops::rms_norm_quantize)
        .def("silu_mul", &Ops::silu_mul)
        .def("silu_mul_quantize", &Ops::silu_mul_quantize)
        .def("attention", &Ops::attention)
        .def("argmax", &Ops::argmax);
}

}  // namespace headway
