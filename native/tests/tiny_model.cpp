#include "tiny_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "check.h"

namespace headway::test {
namespace {

ModelConfig make_config(int hidden, int ffn, int heads, int kv_heads, int head_dim, int vocab) {
    ModelConfig config;
    config.hidden_size = hidden;
    config.ffn_size = ffn;
    config.num_layers = 2;
    config.num_heads = heads;
    config.num_kv_heads = kv_heads;
    config.head_dim = head_dim;
    config.vocab_size = vocab;
    for (int i = 0; i < head_dim / 2; ++i) config.rope_frequencies.push_back(1.0 / (1 + i * i));
    return config;
}

Tensor random_tensor(std::mt19937& random, int rows, int columns) {
    std::normal_distribution<float> normal;
    Tensor tensor{rows, columns, {}};
    const bool is_vector = rows == 1;
    const float centre = is_vector ? 1.0f : 0.0f;
    const float spread = is_vector ? 0.2f : 1.0f / std::sqrt(static_cast<float>(columns));
    for (int i = 0; i < rows * columns; ++i) tensor.values.push_back(normal(random) * spread + centre);
    return tensor;
}

TinyModel make_model(const ModelConfig& c) {
    std::mt19937 random(static_cast<unsigned>(c.hidden_size + c.vocab_size));
    TinyModel tiny{c, {}, {}};
    const auto make = [&](int rows, int columns) { return random_tensor(random, rows, columns); };
    tiny.whole["norm"] = make(1, c.hidden_size);
    tiny.whole["embedding"] = make(c.vocab_size, c.hidden_size);
    if (!c.tied_embeddings) tiny.whole["head"] = make(c.vocab_size, c.hidden_size);
    for (int layer = 0; layer < c.num_layers; ++layer) {
        std::map<std::string, Tensor> tensors;
        tensors["attn_norm"] = make(1, c.hidden_size);
        tensors["ffn_norm"] = make(1, c.hidden_size);
        tensors["q"] = make(c.query_size(), c.hidden_size);
        tensors["k"] = make(c.kv_size(), c.hidden_size);
        tensors["v"] = make(c.kv_size(), c.hidden_size);
        tensors["o"] = make(c.hidden_size, c.query_size());
        tensors["gate"] = make(c.ffn_size, c.hidden_size);
        tensors["up"] = make(c.ffn_size, c.hidden_size);
        tensors["down"] = make(c.hidden_size, c.ffn_size);
        if (c.qkv_bias) {
            tensors["q_bias"] = make(1, c.query_size());
            tensors["k_bias"] = make(1, c.kv_size());
            tensors["v_bias"] = make(1, c.kv_size());
        }
        if (c.qk_norm) {
            tensors["q_norm"] = make(1, c.head_dim);
            tensors["k_norm"] = make(1, c.head_dim);
        }
        tiny.layers.push_back(std::move(tensors));
    }
    return tiny;
}

bool is_norm(const std::string& name) { return name == "norm" || name == "attn_norm" || name == "ffn_norm"; }

/// Norms first: the matrices behind them take them in.
void give(Model& model, const std::map<std::string, Tensor>& tensors, int layer) {
    for (const bool norms : {true, false}) {
        for (const auto& [name, t] : tensors) {
            if (is_norm(name) == norms) model.set_tensor(name, layer, t.values.data(), t.rows, t.columns);
        }
    }
}

}  // namespace

std::vector<TinyModel> tiny_models() {
    ModelConfig odd = make_config(50, 33, 3, 1, 10, 101);
    ModelConfig biased = make_config(36, 64, 6, 2, 10, 67);
    biased.qkv_bias = biased.qk_norm = true;
    biased.rope_pairs = RopePairs::kHalfSplit;
    biased.rope_frequencies.pop_back();  // the last two features of a head do not turn
    ModelConfig smallest = make_config(1, 1, 1, 1, 2, 1);
    ModelConfig wide = make_config(192, 512, 4, 2, 64, 131);
    wide.num_layers = 1;
    wide.tied_embeddings = true;
    return {make_model(odd), make_model(biased), make_model(smallest), make_model(wide)};
}

void fill(Model& model, const TinyModel& tiny) {
    give(model, tiny.whole, -1);
    for (std::size_t layer = 0; layer < tiny.layers.size(); ++layer) {
        give(model, tiny.layers[layer], static_cast<int>(layer));
    }
    model.finish();
}

std::int32_t token_at(const ModelConfig& config, int index) {
    const std::int64_t at = index;  // some tests ask for tokens that no batch could reach
    return static_cast<std::int32_t>((at * 7 + at / 5) % config.vocab_size);
}

std::vector<float> run_needed(Model& model, const KvCache& cache, const std::vector<Lane>& lanes,
                              const std::vector<int>& needed, int num_wasted) {
    std::vector<std::int32_t> ids, bounds = {0}, contexts, tables;
    std::size_t width = 0;
    for (const Lane& lane : lanes) width = std::max(width, lane.table.size());
    for (const Lane& lane : lanes) {
        for (int i = 0; i < lane.num_rows; ++i) ids.push_back(token_at(model.config(), lane.text + lane.first + i));
        bounds.push_back(static_cast<std::int32_t>(ids.size()));
        contexts.push_back(lane.first + lane.num_rows);
        tables.insert(tables.end(), lane.table.begin(), lane.table.end());
        tables.resize(width * contexts.size(), -1);
    }
    ids.resize(ids.size() + static_cast<std::size_t>(num_wasted), 0);
    const int num_needed = static_cast<int>(needed.size());
    const BatchArrays batch{.token_ids = ids.data(),
                            .num_rows = static_cast<int>(ids.size()),
                            .cu_seqlens = bounds.data(),
                            .contexts = contexts.data(),
                            .num_lanes = static_cast<int>(lanes.size()),
                            .block_tables = tables.data(),
                            .table_width = static_cast<int>(width),
                            .needed_rows = needed.data(),
                            .num_needed = num_needed};
    const std::size_t vocab = static_cast<std::size_t>(model.config().vocab_size);
    std::vector<float> logits(needed.size() * vocab);
    std::vector<std::int32_t> best(needed.size());
    model.run(batch, cache, num_needed, logits.data(), best.data());
    for (std::size_t row = 0; row < best.size(); ++row) {
        const float* first = logits.data() + row * vocab;
        expect(best[row] == std::max_element(first, first + vocab) - first, "arg max is the first of the largest");
    }
    return logits;
}

std::vector<float> run_lanes(Model& model, const KvCache& cache, const std::vector<Lane>& lanes, int num_wasted) {
    int num_rows = 0;
    for (const Lane& lane : lanes) num_rows += lane.num_rows;
    std::vector<int> all(static_cast<std::size_t>(num_rows));
    std::iota(all.begin(), all.end(), 0);
    return run_needed(model, cache, lanes, all, num_wasted);
}

}  // namespace headway::test
