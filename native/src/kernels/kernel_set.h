// The table of functions that one instruction set provides, and the plain structs they take.
//
// Nothing here or below allocates or throws: callers check sizes first. All rows of floats are padded to kPad with
// zeros, so a kernel may read (and, where said, write) whole vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

constexpr int kPad = 16;             // floats; the widest vector
constexpr int kGroup = 16;           // tokens stored side by side in the cache
constexpr int kTile = 2 * kGroup;    // tokens per attention tile, at positions 0, 32, 64, ... whatever the block size
constexpr int kHadamardStride = 16;  // distance between the values that one online Hadamard transform mixes
constexpr int kMaxHadamard = 32;

enum class KvDtype { kFloat32, kFloat16, kInt8 };
enum class Epilogue { kStore, kAdd };

/// One quantised row: x[i] = values[i] * scale. `offset` is what an unsigned weight format adds per output, negated.
struct QuantizedRow {
    void* values;  // KernelSet::act_bytes each
    float* scale;
    std::int32_t* offset;
    int levels;  // largest magnitude that values may take
};

/// out[m][n] (+)= sum over k of acts[m][k] * weights[k][n], then scales and bias. Sums over k have one order (float)
/// or are exact (int8), so a row's result does not depend on which rows and panels share the call.
struct GemmArgs {
    const void* acts;  // rows x stride, quantised or float
    std::ptrdiff_t act_stride;
    const float* act_scales;          // int8 only
    const std::int32_t* act_offsets;  // int8 only
    const std::uint8_t* weights;      // packed panels
    std::size_t panel_bytes;
    int num_steps;        // k / unroll
    const float* scales;  // per output, int8 only
    const float* bias;    // per output, or null
    float* out;           // of row_begin
    std::ptrdiff_t out_stride;
    int num_outputs;
    int row_begin, row_end;
    int panel_begin, panel_end;
    Epilogue epilogue;
};

/// Where one layer's keys and values lie. A block holds, per kv head: keys, values, then for int8 three floats per
/// slot (key scale, log2 of value scale, 1 / value scale). `grouped`: block_size is a multiple of kGroup and 16 slots
/// are interleaved as the kernels want them; else a slot's values are contiguous and a tile is gathered first.
struct KvView {
    std::uint8_t* base;
    std::size_t block_bytes;  // one layer's part of a block: all kv heads
    std::size_t head_bytes;
    std::size_t value_offset;
    std::size_t scale_offset;
    int block_size;
    int head_dim;
    int padded_dim;
    KvDtype dtype;
    bool grouped;
};

/// One token's row of fused q, k and v. Writes the queries, and its key and value into the cache.
struct AppendArgs {
    const float* qkv;  // (num_heads + 2 * num_kv_heads) x head_dim
    int num_heads;
    int num_kv_heads;
    int rope_half;        // rotated pairs; 2 * rope_half <= head_dim
    const float* cos;     // rope_half
    const float* sin;     // rope_half
    const float* q_norm;  // head_dim, or null
    const float* k_norm;  // head_dim, or null
    float norm_eps;
    float query_scale;  // softmax scale * log2(e)
    int query_levels;
    const KvView* kv;
    int block, slot;      // where this token's key and value go
    void* queries;        // num_heads x padded_dim: float, or quantised for an int8 cache
    float* query_scales;  // num_heads, int8 cache only
    std::int32_t* query_offsets;
    float* scratch;  // 3 * padded_dim
};

/// Attention of `num_rows` query rows of one sequence and one kv head over that sequence's cache.
struct AttendArgs {
    const KvView* kv;
    const std::int32_t* block_table;
    int kv_head;
    int num_rows;
    const void* queries;  // num_rows x padded_dim
    const float* query_scales;
    const std::int32_t* query_offsets;
    const int* lengths;  // tokens row r may see, not falling from row to row
    int prob_levels;
    float* out;             // num_rows x padded_dim
    std::uint8_t* scratch;  // KernelSet::attend_scratch(num_rows, padded_dim) bytes
};

struct KernelSet {
    const char* name;
    int panel_width;    // outputs per panel
    int unroll;         // k values of one output side by side in an int8 panel
    int act_bytes;      // of one quantised activation
    int weight_offset;  // added to stored int8 weights and keys (unsigned formats)
    int act_levels;     // caps on QuantizedRow::levels: how much of the integer product's range is free
    int prob_levels;
    int row_tile;

    void (*gemm_int8)(const GemmArgs&);
    void (*gemm_float32)(const GemmArgs&);
    void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);
    void (*rms_norm_quantize)(const float* x, int n, float eps, const QuantizedRow& out);
    void (*quantize)(const float* x, int n, const QuantizedRow& out);
    void (*silu_mul)(const float* gate_up, int n, float* out);
    void (*silu_mul_quantize)(const float* gate_up, int n, int hadamard, const QuantizedRow& out, float* scratch);
    void (*append)(const AppendArgs&);
    void (*attend)(const AttendArgs&);
    std::size_t (*attend_scratch)(int num_rows, int padded_dim);
    int (*argmax)(const float* x, int n);
    // A gemm's product steps on registers alone; returns the multiply-accumulates done. The yardstick of the gemms.
    double (*products_int8)(int num_steps);
    double (*products_float32)(int num_steps);
};

}  // namespace headway
