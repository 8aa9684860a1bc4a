// A model's weights, taken in one float32 tensor at a time and kept in kernel order.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "model/packed_matrix.h"
#include "model/rotation.h"

namespace headway {

struct LayerWeights {
    PackedMatrix qkv;  // queries, keys, values one below the other
    PackedMatrix output;
    PackedMatrix gate_up;  // gates, then ups
    PackedMatrix down;
    Array<float> attn_norm, ffn_norm;  // folded into the matrices behind them for int8
    Array<float> q_norm, k_norm;       // empty, or head_dim
};

/// Token embeddings as rows: int8 with a scale per token, or float32.
class Embedding {
public:
    Embedding() = default;
    Embedding(WeightFormat format, int num_tokens, int width);

    std::size_t num_bytes() const { return bytes_.size() + scales_.size() * sizeof(float); }
    void set(int token, const float* values);
    void get(int token, float* out) const;

private:
    WeightFormat format_ = WeightFormat::kFloat32;
    std::size_t width_ = 0;
    Array<std::uint8_t> bytes_;
    Array<float> scales_;
};

/// Names of tensors: embedding, head, norm; per layer attn_norm, ffn_norm, q, k, v, o, gate, up, down, and where the
/// config says so q_bias, k_bias, v_bias, q_norm, k_norm. With int8 weights a norm must come before the matrices that
/// read it, because it is folded into them: attn_norm before q, k, v; ffn_norm before gate, up; norm before the head
/// (or before a tied embedding).
class Weights {
public:
    Weights(const ModelConfig& config, WeightFormat format, const KernelSet& set);

    /// Takes one tensor of num_rows x num_columns (a vector has one row); `layer` is -1 outside layers. Throws
    /// std::invalid_argument for an unknown name, a wrong shape, a tensor given twice or before its norm.
    void set(const std::string& name, int layer, const float* values, int num_rows, int num_columns, ThreadPool& pool);

    /// Throws std::invalid_argument naming a tensor that is missing.
    void check_complete() const;

    std::size_t num_bytes() const;
    WeightFormat format() const { return format_; }
    int hadamard() const { return hadamard_; }
    const LayerWeights& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
    const PackedMatrix& head() const { return head_; }
    const Array<float>& norm() const { return norm_; }
    void embed(int token, float* out) const;

private:
    /// What one named matrix is and where it goes.
    struct Plan {
        int num_rows = 0, num_columns = 0;
        PackedMatrix* target = nullptr;
        int first_output = 0;
        const Array<float>* folded_norm = nullptr;
        int num_rope_heads = 0;  // heads whose rows are reordered into half-split pairs
        bool reads_residual = false, writes_residual = false, reads_gated = false;
    };
    struct VectorPlan {
        int size = 0;
        Array<float>* target = nullptr;
        PackedMatrix* bias_of = nullptr;
        int first_output = 0;
        int num_rope_heads = 0;
    };

    LayerWeights* layer_at(const std::string& label, int layer);
    void check(const std::string& label, const Plan& plan, int num_rows, int num_columns) const;
    bool plan_matrix(const std::string& name, LayerWeights* layer, Plan& plan);
    bool plan_vector(const std::string& name, LayerWeights* layer, VectorPlan& plan);
    void take_matrix(const Plan& plan, const float* values, ThreadPool& pool);
    void take_residual_writer(const Plan& plan, const float* values, ThreadPool& pool);
    void take_embedding(const float* values, ThreadPool& pool);
    void take_vector(const VectorPlan& plan, const float* values);
    int source_row(const Plan& plan, int row) const;
    std::vector<std::string> expected_names() const;

    ModelConfig config_;
    WeightFormat format_;
    Rotation rotation_;
    int hadamard_;
    Arena arena_;  // of all matrices
    std::vector<LayerWeights> layers_;
    Embedding embedding_;
    PackedMatrix head_;
    Array<float> norm_;
    std::set<std::string> taken_;
};

}  // namespace headway
