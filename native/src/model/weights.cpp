#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace headway {
namespace {

constexpr int kSlab = 64;   // columns rotated together
constexpr int kBatch = 32;  // rows per task: whole panels, so that threads do not share cache lines

std::string full_name(const std::string& name, int layer) {
    return layer < 0 ? name : "layer " + std::to_string(layer) + " " + name;
}

/// Of all matrices together, short of padding: each alone may fit in memory where all of them do not.
std::size_t total_bytes(const ModelConfig& config, WeightFormat format) {
    const auto size = [](int n) { return static_cast<std::size_t>(n); };
    const bool quantized = format == WeightFormat::kInt8;
    const std::size_t width = size(config.hidden_size);
    const std::size_t layer = size(2 * config.query_size() + 2 * config.kv_size()) + size(3) * size(config.ffn_size);
    const std::size_t ends = size(config.vocab_size) * (quantized || !config.tied_embeddings ? 2 : 1);
    return width * (layer * size(config.num_layers) + ends) * (quantized ? 1 : sizeof(float));
}

int num_tasks(int count, int per_task) { return (count + per_task - 1) / per_task; }

}  // namespace

Embedding::Embedding(WeightFormat format, int num_tokens, int width)
    : format_(format), width_(round_up(static_cast<std::size_t>(width), kPad)) {
    const std::size_t tokens = static_cast<std::size_t>(num_tokens);
    const bool quantized = format == WeightFormat::kInt8;
    bytes_ = Array<std::uint8_t>(checked_product(tokens, width_ * (quantized ? 1 : sizeof(float))));
    if (quantized) scales_ = Array<float>(tokens);
}

void Embedding::set(int token, const float* values) {
    const std::size_t t = static_cast<std::size_t>(token);
    if (format_ == WeightFormat::kFloat32) {
        std::memcpy(bytes_.data() + t * width_ * sizeof(float), values, width_ * sizeof(float));
        return;
    }
    float top = 1e-20f;
    for (std::size_t i = 0; i < width_; ++i) top = std::max(top, std::fabs(values[i]));
    scales_[t] = top / 127.0f;
    const float inverse = 127.0f / top;
    for (std::size_t i = 0; i < width_; ++i)
        bytes_[t * width_ + i] = static_cast<std::uint8_t>(std::lrintf(values[i] * inverse));
}

void Embedding::get(int token, float* out) const {
    const std::size_t t = static_cast<std::size_t>(token);
    if (format_ == WeightFormat::kFloat32) {
        std::memcpy(out, bytes_.data() + t * width_ * sizeof(float), width_ * sizeof(float));
        return;
    }
    const float scale = scales_[t];
    for (std::size_t i = 0; i < width_; ++i)
        out[i] = static_cast<float>(static_cast<std::int8_t>(bytes_[t * width_ + i])) * scale;
}

Weights::Weights(const ModelConfig& config, WeightFormat format, const KernelSet& set)
    : config_(config), format_(format), rotation_(config.hidden_size), hadamard_(1) {
    const bool quantized = format == WeightFormat::kInt8;
    if (quantized) hadamard_ = online_hadamard_size(config.ffn_size);
    require_memory(total_bytes(config, format));
    const int width = config.hidden_size;
    layers_.resize(static_cast<std::size_t>(config.num_layers));
    for (LayerWeights& layer : layers_) {
        layer.qkv = PackedMatrix(arena_, set, format, config.query_size() + 2 * config.kv_size(), width);
        layer.output = PackedMatrix(arena_, set, format, width, config.query_size());
        layer.gate_up = PackedMatrix(arena_, set, format, 2 * config.ffn_size, width);
        layer.down = PackedMatrix(arena_, set, format, width, config.ffn_size);
    }
    head_ = PackedMatrix(arena_, set, format, config.vocab_size, width);
    // A tied float32 embedding is the head; a tied int8 one is not: only the head has the final norm folded in.
    if (quantized || !config.tied_embeddings) embedding_ = Embedding(format, config.vocab_size, width);
}

void Weights::embed(int token, float* out) const {
    if (embedding_.num_bytes() != 0) return embedding_.get(token, out);
    head_.copy_output(token, out);
}

std::size_t Weights::num_bytes() const {
    std::size_t total = embedding_.num_bytes() + head_.num_bytes();
    for (const LayerWeights& layer : layers_) {
        total += layer.qkv.num_bytes() + layer.output.num_bytes() + layer.gate_up.num_bytes() + layer.down.num_bytes();
    }
    return total;
}

bool Weights::plan_matrix(const std::string& name, LayerWeights* layer, Plan& plan) {
    const int width = config_.hidden_size, q = config_.query_size(), kv = config_.kv_size(), ffn = config_.ffn_size;
    if (layer == nullptr) {
        if (name != "head" || config_.tied_embeddings) return false;
        plan = {config_.vocab_size, width, &head_, 0, &norm_, 0, true, false, false};
        return true;
    }
    if (name == "q") plan = {q, width, &layer->qkv, 0, &layer->attn_norm, config_.num_heads, true, false, false};
    if (name == "k") plan = {kv, width, &layer->qkv, q, &layer->attn_norm, config_.num_kv_heads, true, false, false};
    if (name == "v") plan = {kv, width, &layer->qkv, q + kv, &layer->attn_norm, 0, true, false, false};
    if (name == "o") plan = {width, q, &layer->output, 0, nullptr, 0, false, true, false};
    if (name == "gate") plan = {ffn, width, &layer->gate_up, 0, &layer->ffn_norm, 0, true, false, false};
    if (name == "up") plan = {ffn, width, &layer->gate_up, ffn, &layer->ffn_norm, 0, true, false, false};
    if (name == "down") plan = {width, ffn, &layer->down, 0, nullptr, 0, false, true, true};
    return plan.target != nullptr;
}

bool Weights::plan_vector(const std::string& name, LayerWeights* layer, VectorPlan& plan) {
    const int q = config_.query_size(), kv = config_.kv_size(), heads = config_.num_heads,
              kv_heads = config_.num_kv_heads;
    if (layer == nullptr) {
        if (name == "norm") plan = {config_.hidden_size, &norm_, nullptr, 0, 0};
        return plan.size != 0;
    }
    if (name == "attn_norm") plan = {config_.hidden_size, &layer->attn_norm, nullptr, 0, 0};
    if (name == "ffn_norm") plan = {config_.hidden_size, &layer->ffn_norm, nullptr, 0, 0};
    if (config_.qk_norm && name == "q_norm") plan = {config_.head_dim, &layer->q_norm, nullptr, 0, 1};
    if (config_.qk_norm && name == "k_norm") plan = {config_.head_dim, &layer->k_norm, nullptr, 0, 1};
    if (config_.qkv_bias && name == "q_bias") plan = {q, nullptr, &layer->qkv, 0, heads};
    if (config_.qkv_bias && name == "k_bias") plan = {kv, nullptr, &layer->qkv, q, kv_heads};
    if (config_.qkv_bias && name == "v_bias") plan = {kv, nullptr, &layer->qkv, q + kv, 0};
    return plan.size != 0;
}

namespace {

/// Attention does not notice a common reordering of query and key features, so interleaved pairs (2 i, 2 i + 1) are
/// stored as half-split ones, which the kernels rotate whole vectors at a time.
int half_split_row(int row, int head_dim, int rope_half) {
    const int i = row % head_dim;
    if (i >= 2 * rope_half) return row;
    return row - i + (i < rope_half ? 2 * i : 2 * (i - rope_half) + 1);
}

}  // namespace

int Weights::source_row(const Plan& plan, int row) const {
    if (plan.num_rope_heads == 0 || config_.rope_pairs == RopePairs::kHalfSplit) return row;
    return half_split_row(row, config_.head_dim, config_.rope_half());
}

LayerWeights* Weights::layer_at(const std::string& label, int layer) {
    if (layer >= config_.num_layers || layer < -1) {
        throw std::invalid_argument(label + ": the model has " + std::to_string(config_.num_layers) + " layers");
    }
    return layer < 0 ? nullptr : &layers_[static_cast<std::size_t>(layer)];
}

void Weights::check(const std::string& label, const Plan& plan, int num_rows, int num_columns) const {
    if (num_rows != plan.num_rows || num_columns != plan.num_columns) {
        throw std::invalid_argument(label + " is " + std::to_string(num_rows) + " x " + std::to_string(num_columns) +
                                    "; it must be " + std::to_string(plan.num_rows) + " x " +
                                    std::to_string(plan.num_columns));
    }
    if (format_ == WeightFormat::kInt8 && plan.folded_norm != nullptr && plan.folded_norm->size() == 0) {
        throw std::invalid_argument(label + ": its norm must be given first");
    }
    if (taken_.contains(label)) throw std::invalid_argument(label + " was given twice");
}

void Weights::set(const std::string& name, int layer, const float* values, int num_rows, int num_columns,
                  ThreadPool& pool) {
    const std::string label = full_name(name, layer);
    LayerWeights* in = layer_at(label, layer);
    Plan plan;
    VectorPlan vector;
    const bool is_embedding = in == nullptr && name == "embedding", tied = config_.tied_embeddings;
    if (is_embedding) {
        plan = {config_.vocab_size, config_.hidden_size, &head_, 0, tied ? &norm_ : nullptr, 0, true, false, false};
    } else if (!plan_matrix(name, in, plan)) {
        if (!plan_vector(name, in, vector)) throw std::invalid_argument(label + ": this model has no such tensor");
        plan.num_rows = 1;
        plan.num_columns = vector.size;
    }
    check(label, plan, num_rows, num_columns);
    if (vector.size != 0) {
        take_vector(vector, values);
    } else if (plan.writes_residual) {
        take_residual_writer(plan, values, pool);
    } else {
        if (is_embedding) take_embedding(values, pool);
        if (!is_embedding || tied) take_matrix(plan, values, pool);
    }
    taken_.insert(label);
}

void Weights::take_vector(const VectorPlan& plan, const float* values) {
    const bool reorder = plan.num_rope_heads != 0 && config_.rope_pairs == RopePairs::kInterleaved;
    Array<float> ordered(round_up(static_cast<std::size_t>(plan.size), kPad));
    for (int i = 0; i < plan.size; ++i) {
        const int from = reorder ? half_split_row(i, config_.head_dim, config_.rope_half()) : i;
        ordered[static_cast<std::size_t>(i)] = values[from];
    }
    if (plan.target != nullptr) {
        *plan.target = std::move(ordered);
        return;
    }
    for (int i = 0; i < plan.size; ++i)
        plan.bias_of->set_bias(plan.first_output + i, ordered[static_cast<std::size_t>(i)]);
}

void Weights::take_matrix(const Plan& plan, const float* values, ThreadPool& pool) {
    const std::size_t width = static_cast<std::size_t>(plan.num_columns);
    const bool rotates = format_ == WeightFormat::kInt8 && plan.reads_residual;
    Array<float> rows(2 * width * static_cast<std::size_t>(pool.num_threads()));
    pool.run([&](Worker& worker) {
        float* row = rows.data() + 2 * width * static_cast<std::size_t>(worker.index());
        worker.for_each(num_tasks(plan.num_rows, kBatch), [&](int task) {
            for (int r = task * kBatch; r < std::min(plan.num_rows, (task + 1) * kBatch); ++r) {
                std::memcpy(row, values + static_cast<std::size_t>(source_row(plan, r)) * width, width * sizeof(float));
                if (rotates) {
                    for (std::size_t i = 0; i < width; ++i) row[i] *= (*plan.folded_norm)[i];
                    rotation_.apply(row, 1, row + width);
                }
                plan.target->set_output(plan.first_output + r, row);
            }
        });
    });
}

void Weights::take_residual_writer(const Plan& plan, const float* values, ThreadPool& pool) {
    if (format_ == WeightFormat::kFloat32) return take_matrix(plan, values, pool);
    const std::size_t width = static_cast<std::size_t>(plan.num_columns),
                      height = static_cast<std::size_t>(plan.num_rows);
    Array<float> matrix(height * width);
    Array<float> slabs(2 * height * kSlab * static_cast<std::size_t>(pool.num_threads()));
    pool.run([&](Worker& worker) {
        float* slab = slabs.data() + 2 * height * kSlab * static_cast<std::size_t>(worker.index());
        worker.for_each(num_tasks(plan.num_columns, kSlab), [&](int task) {
            const std::size_t begin = static_cast<std::size_t>(task) * kSlab,
                              n = std::min<std::size_t>(kSlab, width - begin);
            for (std::size_t r = 0; r < height; ++r)
                std::memcpy(slab + r * n, values + r * width + begin, n * sizeof(float));
            rotation_.apply(slab, n, slab + height * n);
            for (std::size_t r = 0; r < height; ++r)
                std::memcpy(matrix.data() + r * width + begin, slab + r * n, n * sizeof(float));
        });
        worker.for_each(num_tasks(plan.num_rows, kBatch), [&](int task) {
            for (int r = task * kBatch; r < std::min(plan.num_rows, (task + 1) * kBatch); ++r) {
                float* row = matrix.data() + static_cast<std::size_t>(r) * width;
                if (plan.reads_gated) hadamard_row(row, plan.num_columns, hadamard_);
                plan.target->set_output(r, row);
            }
        });
    });
}

void Weights::take_embedding(const float* values, ThreadPool& pool) {
    if (embedding_.num_bytes() == 0) return;
    const std::size_t width = static_cast<std::size_t>(config_.hidden_size), padded = round_up(width, kPad);
    Array<float> rows(2 * padded * static_cast<std::size_t>(pool.num_threads()));
    pool.run([&](Worker& worker) {
        float* row = rows.data() + 2 * padded * static_cast<std::size_t>(worker.index());
        worker.for_each(num_tasks(config_.vocab_size, kBatch), [&](int task) {
            for (int t = task * kBatch; t < std::min(config_.vocab_size, (task + 1) * kBatch); ++t) {
                std::memcpy(row, values + static_cast<std::size_t>(t) * width, width * sizeof(float));
                if (format_ == WeightFormat::kInt8) rotation_.apply(row, 1, row + padded);
                embedding_.set(t, row);
            }
        });
    });
}

std::vector<std::string> Weights::expected_names() const {
    std::vector<std::string> names = {"embedding", "norm"};
    if (!config_.tied_embeddings) names.emplace_back("head");
    std::vector<std::string> each = {"attn_norm", "ffn_norm", "q", "k", "v", "o", "gate", "up", "down"};
    if (config_.qkv_bias) each.insert(each.end(), {"q_bias", "k_bias", "v_bias"});
    if (config_.qk_norm) each.insert(each.end(), {"q_norm", "k_norm"});
    for (int layer = 0; layer < config_.num_layers; ++layer) {
        for (const std::string& name : each) names.push_back(full_name(name, layer));
    }
    return names;
}

void Weights::check_complete() const {
    for (const std::string& name : expected_names()) {
        if (!taken_.contains(name)) throw std::invalid_argument(name + " was not given");
    }
}

}  // namespace headway
