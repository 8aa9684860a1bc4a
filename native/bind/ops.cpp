// Single operations of a kernel set, for parity tests against the NumPy reference.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "bind/arrays.h"
#include "bind/op_checks.h"
#include "kernels/registry.h"
#include "model/model.h"

namespace headway {
namespace {

/// One kernel set, one operation at a time, on the caller's thread. Inputs are copied into padded rows.
class Ops {
public:
    explicit Ops(const std::string& kernel_set) : set_(find_kernel_set(kernel_set)) {}

    int act_levels(int num_inputs) const {
        require_width(num_inputs);
        Arena arena;
        return PackedMatrix(arena, set_, WeightFormat::kInt8, 1, num_inputs).input_levels();
    }

    void linear(Floats2 x, Floats2 weight, Floats1 bias, bool quantized, int rows_at_once, OutFloats2 out) const;
    void rms_norm(Floats2 x, Floats1 weight, float eps, OutFloats2 out) const;
    void quantize(Floats2 x, int levels, OutFloats2 out) const;
    void rms_norm_quantize(Floats2 x, float eps, int levels, OutFloats2 out) const;
    void silu_mul(Floats2 gate_up, OutFloats2 out) const;
    void silu_mul_quantize(Floats2 gate_up, int hadamard, int levels, OutFloats2 out) const;
    void attention(Floats3 q, Floats3 k, Floats3 v, Ints1 block_table, int num_blocks, int block_size, int dtype,
                   int rows_at_once, OutFloats3 out) const;
    int argmax(Floats1 x) const {
        require_width(extent(x, 0));
        return set_.argmax(x.data(), extent(x, 0));
    }

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
    require_width(inputs);
    require(outputs >= 1, "a product has at least one output");
    require(extent(weight, 1) == inputs && extent(out, 0) == rows && extent(out, 1) == outputs, "shapes do not match");
    require(bias.shape(0) == 0 || extent(bias, 0) == outputs, "one bias per output, or none");
    require(rows_at_once >= 1, "rows_at_once must be positive");
    const WeightFormat format = quantized ? WeightFormat::kInt8 : WeightFormat::kFloat32;
    Arena arena;
    PackedMatrix matrix(arena, set_, format, outputs, inputs);
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
    require_rows(x, out);
    const int n = extent(x, 1);
    require(extent(weight, 0) == n, "one weight per value");
    const Array<float> w = padded_row(weight.data(), n);
    for (int r = 0; r < extent(x, 0); ++r) {
        const Array<float> row = padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * n, n);
        set_.rms_norm(row.data(), w.data(), n, eps, row.data());
        std::memcpy(out.data() + static_cast<std::ptrdiff_t>(r) * n, row.data(),
                    sizeof(float) * static_cast<std::size_t>(n));
    }
}

void Ops::quantize(Floats2 x, int levels, OutFloats2 out) const {
    require_rows(x, out);
    require_levels(set_, levels);
    const int n = extent(x, 1);
    ActRows acts(set_, WeightFormat::kInt8, 1, n);
    for (int r = 0; r < extent(x, 0); ++r) {
        set_.quantize(padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * n, n).data(), n,
                      acts.quantized(0, levels));
        read_back(acts.quantized(0, levels), out.data() + static_cast<std::ptrdiff_t>(r) * n, n);
    }
}

void Ops::rms_norm_quantize(Floats2 x, float eps, int levels, OutFloats2 out) const {
    require_rows(x, out);
    require_levels(set_, levels);
    const int n = extent(x, 1);
    ActRows acts(set_, WeightFormat::kInt8, 1, n);
    for (int r = 0; r < extent(x, 0); ++r) {
        const Array<float> row = padded_row(x.data() + static_cast<std::ptrdiff_t>(r) * n, n);
        set_.rms_norm_quantize(row.data(), n, eps, acts.quantized(0, levels));
        read_back(acts.quantized(0, levels), out.data() + static_cast<std::ptrdiff_t>(r) * n, n);
    }
}

void Ops::silu_mul(Floats2 gate_up, OutFloats2 out) const {
    require_gate(gate_up, out);
    const int n = extent(out, 1);
    Array<float> result(round_up(static_cast<std::size_t>(n), kPad));
    for (int r = 0; r < extent(out, 0); ++r) {
        const Array<float> row = padded_row(gate_up.data() + static_cast<std::ptrdiff_t>(r) * 2 * n, 2 * n);
        set_.silu_mul(row.data(), n, result.data());
        std::memcpy(out.data() + static_cast<std::ptrdiff_t>(r) * n, result.data(),
                    sizeof(float) * static_cast<std::size_t>(n));
    }
}

void Ops::silu_mul_quantize(Floats2 gate_up, int hadamard, int levels, OutFloats2 out) const {
    require_gate(gate_up, out);
    require_levels(set_, levels);
    const int n = extent(out, 1);
    const bool is_power = hadamard >= 1 && hadamard <= kMaxHadamard && (hadamard & (hadamard - 1)) == 0;
    require(is_power, "hadamard must be a power of two up to 32");
    ActRows acts(set_, WeightFormat::kInt8, 1, n);
    Array<float> scratch(round_up(static_cast<std::size_t>(n), kPad));
    for (int r = 0; r < extent(out, 0); ++r) {
        const Array<float> row = padded_row(gate_up.data() + static_cast<std::ptrdiff_t>(r) * 2 * n, 2 * n);
        set_.silu_mul_quantize(row.data(), n, hadamard, acts.quantized(0, levels), scratch.data());
        read_back(acts.quantized(0, levels), out.data() + static_cast<std::ptrdiff_t>(r) * n, n);
    }
}

/// One sequence's cache with NaN in its spare slots, and the queries of all its tokens.
struct Sequence {
    Sequence(const KernelSet& set, Floats3 q, Floats3 k, Floats3 v, const std::int32_t* table, int num_blocks,
             int block_size, KvDtype dtype);

    ModelConfig config;
    int num_rows, context, first_row;
    KvCache cache;
    KvView kv;
    std::size_t head_bytes;  // of one query as stored
    Array<std::uint8_t> queries;
    Array<float> scales;
    Array<std::int32_t> offsets;
};

ModelConfig attention_config(const Floats3& q, const Floats3& k) {
    ModelConfig config;
    config.vocab_size = config.hidden_size = config.ffn_size = config.num_layers = 1;
    config.num_heads = extent(q, 1);
    config.num_kv_heads = extent(k, 1);
    config.head_dim = extent(q, 2);
    config.rope_frequencies = {0.0};
    return config;
}

Sequence::Sequence(const KernelSet& set, Floats3 q, Floats3 k, Floats3 v, const std::int32_t* table, int num_blocks,
                   int block_size, KvDtype dtype)
    : config(attention_config(q, k)),
      num_rows(extent(q, 0)),
      context(extent(k, 0)),
      first_row(context - num_rows),
      cache(config, dtype, block_size, num_blocks, 0),
      kv(cache.layer(0)) {
    const int heads = config.num_heads, kv_heads = config.num_kv_heads, dim = config.head_dim, padded = kv.padded_dim;
    const std::size_t act_bytes = dtype == KvDtype::kInt8 ? static_cast<std::size_t>(set.act_bytes) : sizeof(float);
    const std::size_t count = static_cast<std::size_t>(context * heads);
    head_bytes = static_cast<std::size_t>(padded) * act_bytes;
    queries = Array<std::uint8_t>(head_bytes * count);
    scales = Array<float>(count);
    offsets = Array<std::int32_t>(count);
    std::vector<int> all(static_cast<std::size_t>(num_blocks));
    for (int i = 0; i < num_blocks; ++i) all[static_cast<std::size_t>(i)] = i;
    cache.poison(all);
    Array<float> scratch(static_cast<std::size_t>(3 * padded));
    std::vector<float> qkv(static_cast<std::size_t>((heads + 2 * kv_heads) * dim));
    const float one = 1.0f, zero = 0.0f;
    for (int t = 0; t < context; ++t) {
        if (t >= first_row) std::copy_n(q.data() + (t - first_row) * heads * dim, heads * dim, qkv.begin());
        std::copy_n(k.data() + t * kv_heads * dim, kv_heads * dim, qkv.begin() + heads * dim);
        std::copy_n(v.data() + t * kv_heads * dim, kv_heads * dim, qkv.begin() + (heads + kv_heads) * dim);
        set.append({.qkv = qkv.data(),
                    .num_heads = heads,
                    .num_kv_heads = kv_heads,
                    .rope_half = 1,
                    .cos = &one,
                    .sin = &zero,
                    .q_norm = nullptr,
                    .k_norm = nullptr,
                    .norm_eps = 1e-5f,
                    .query_scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(dim)),
                    .query_levels = std::min(set.prob_levels / 2, 0x7FFFFFFF / 127 / padded),
                    .kv = &kv,
                    .block = table[t / block_size],
                    .slot = t % block_size,
                    .queries = queries.data() + static_cast<std::size_t>(t * heads) * head_bytes,
                    .query_scales = scales.data() + t * heads,
                    .query_offsets = offsets.data() + t * heads,
                    .scratch = scratch.data()});
    }
}

/// Attention of `count` rows from `first` on, and of the query heads of one kv head.
void attend_rows(const KernelSet& set, const Sequence& seq, const std::int32_t* table, Range rows, int kv_head,
                 float* out) {
    const int heads = seq.config.num_heads, shared = heads / seq.config.num_kv_heads, dim = seq.config.head_dim;
    const int count = (rows.end - rows.begin) * shared, padded = seq.kv.padded_dim;
    const std::size_t n = static_cast<std::size_t>(count);
    Array<std::uint8_t> queries(seq.head_bytes * n), scratch(set.attend_scratch(count, padded));
    Array<float> scales(n), result(n * static_cast<std::size_t>(padded));
    Array<std::int32_t> offsets(n);
    std::vector<int> lengths(n);
    for (std::size_t i = 0; i < n; ++i) {
        const int token = seq.first_row + rows.begin + static_cast<int>(i) / shared;
        const std::size_t from =
            static_cast<std::size_t>(token * heads + kv_head * shared + static_cast<int>(i) % shared);
        std::memcpy(queries.data() + i * seq.head_bytes, seq.queries.data() + from * seq.head_bytes, seq.head_bytes);
        scales[i] = seq.scales[from];
        offsets[i] = seq.offsets[from];
        lengths[i] = token + 1;
    }
    const bool quantized = seq.kv.dtype == KvDtype::kInt8;
    set.attend({.kv = &seq.kv,
                .block_table = table,
                .kv_head = kv_head,
                .num_rows = count,
                .queries = queries.data(),
                .query_scales = quantized ? scales.data() : nullptr,
                .query_offsets = quantized ? offsets.data() : nullptr,
                .lengths = lengths.data(),
                .prob_levels = set.prob_levels,
                .out = result.data(),
                .scratch = scratch.data()});
    for (int i = 0; i < count; ++i) {
        float* to = out + ((rows.begin + i / shared) * heads + kv_head * shared + i % shared) * dim;
        std::copy_n(result.data() + i * padded, dim, to);
    }
}

/// The last T of C tokens attend to all before them: q is T x H x D, k and v are C x K x D. Spare slots hold NaN.
void Ops::attention(Floats3 q, Floats3 k, Floats3 v, Ints1 block_table, int num_blocks, int block_size, int dtype,
                    int rows_at_once, OutFloats3 out) const {
    const int context = extent(k, 0), dim = extent(q, 2);
    require(dtype >= 0 && dtype <= static_cast<int>(KvDtype::kInt8), "unknown kv dtype");
    require(extent(q, 0) >= 1 && extent(q, 0) <= context && context <= kMostTokens, "1 to C of 8192 tokens attend");
    for (std::size_t axis = 0; axis < 3; ++axis) {
        require(q.shape(axis) == out.shape(axis) && k.shape(axis) == v.shape(axis), "shapes do not match");
    }
    require(extent(k, 2) == dim && rows_at_once >= 1, "shapes do not match, or rows_at_once is not positive");
    require(block_size >= 1 && (context - 1) / block_size < extent(block_table, 0), "too few blocks");
    for (int i = 0; i < extent(block_table, 0); ++i) {
        require(block_table(i) >= 0 && block_table(i) < num_blocks, "a block does not exist");
    }
    const std::int32_t* table = block_table.data();
    const Sequence sequence(set_, q, k, v, table, num_blocks, block_size, static_cast<KvDtype>(dtype));
    for (int first = 0; first < sequence.num_rows; first += rows_at_once) {
        const Range rows{first, std::min(sequence.num_rows, first + rows_at_once)};
        for (int h = 0; h < sequence.config.num_kv_heads; ++h) attend_rows(set_, sequence, table, rows, h, out.data());
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
