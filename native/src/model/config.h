// The numbers that describe a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel_set.h"

namespace headway {

enum class WeightFormat { kFloat32, kInt8 };

/// Which features of a head turn together: (i, i + half) or (2 i, 2 i + 1).
enum class RopePairs { kHalfSplit, kInterleaved };

struct ModelConfig {
    int vocab_size = 0;
    int hidden_size = 0;
    int ffn_size = 0;
    int num_layers = 0;
    int num_heads = 0;
    int num_kv_heads = 0;
    int head_dim = 0;
    float norm_eps = 1e-5f;
    std::vector<double> rope_frequencies;  // radians per position of each rotated pair
    RopePairs rope_pairs = RopePairs::kInterleaved;
    bool tied_embeddings = false;
    bool qkv_bias = false;
    bool qk_norm = false;

    int query_size() const { return num_heads * head_dim; }
    int kv_size() const { return num_kv_heads * head_dim; }
    int rope_half() const { return static_cast<int>(rope_frequencies.size()); }

    /// Throws std::invalid_argument naming the first number that cannot be.
    void check() const;
};

}  // namespace headway
