// A program that exercises the native code without Python, for the sanitizers: a tiny random model, every kernel set
// this processor runs, both weight formats, every cache dtype, several threads, and arguments that must be refused.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/registry.h"
#include "model/model.h"

namespace {

using namespace headway;

int num_failures = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "FAILED: %s\n", what);
    ++num_failures;
}

template <class Error, class Fn>
void expect_refused(Fn&& fn, const char* what) {
    try {
        fn();
    } catch (const Error&) {
        return;
    }
    expect(false, what);
}

ModelConfig tiny_config() {
    ModelConfig config;
    config.vocab_size = 67;
    config.hidden_size = 36;
    config.ffn_size = 64;
    config.num_layers = 2;
    config.num_heads = 6;
    config.num_kv_heads = 2;
    config.head_dim = 10;
    config.rope_frequencies = {1.0, 0.3, 0.1, 0.03};
    config.qkv_bias = true;
    config.qk_norm = true;
    return config;
}

void set_random(Model& model, std::mt19937& random, const char* name, int layer, int rows, int columns) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
    for (float& value : values) value = normal(random) * 0.2f + (rows == 1 ? 1.0f : 0.0f);
    model.set_tensor(name, layer, values.data(), rows, columns);
}

void fill(Model& model) {
    std::mt19937 random(1);
    const ModelConfig& c = model.config();
    const int width = c.hidden_size, q = c.query_size(), kv = c.kv_size(), ffn = c.ffn_size;
    struct Tensor {
        const char* name;
        int rows, columns;
    };
    for (const Tensor& t :
         {Tensor{"norm", 1, width}, {"embedding", c.vocab_size, width}, {"head", c.vocab_size, width}}) {
        set_random(model, random, t.name, -1, t.rows, t.columns);
    }
    for (int layer = 0; layer < c.num_layers; ++layer) {
        for (const Tensor& t : {Tensor{"attn_norm", 1, width},
                                {"ffn_norm", 1, width},
                                {"q", q, width},
                                {"k", kv, width},
                                {"v", kv, width},
                                {"o", width, q},
                                {"gate", ffn, width},
                                {"up", ffn, width},
                                {"down", width, ffn},
                                {"q_bias", 1, q},
                                {"k_bias", 1, kv},
                                {"v_bias", 1, kv},
                                {"q_norm", 1, c.head_dim},
                                {"k_norm", 1, c.head_dim}}) {
            set_random(model, random, t.name, layer, t.rows, t.columns);
        }
    }
    model.finish();
}

/// One lane of `num_rows` tokens ending at `context`, its blocks in falling order.
std::vector<float> run_lane(Model& model, const KvCache& cache, int first, int num_rows,
                            const std::vector<int>& table) {
    std::vector<std::int32_t> ids, needed;
    for (int i = 0; i < num_rows; ++i) {
        ids.push_back((first + i) * 7 % 67);
        needed.push_back(i);
    }
    const std::int32_t bounds[] = {0, num_rows}, context[] = {first + num_rows};
    const BatchArrays batch{ids.data(),    num_rows, bounds, context, 1, table.data(), static_cast<int>(table.size()),
                            needed.data(), num_rows};
    std::vector<float> logits(static_cast<std::size_t>(num_rows) * 67);
    std::vector<std::int32_t> best(static_cast<std::size_t>(num_rows));
    model.run(batch, cache, num_rows, logits.data(), best.data());
    for (std::int32_t token : best) expect(token >= 0 && token < 67, "arg max inside the vocabulary");
    return logits;
}

void check_chunks(const std::string& set, WeightFormat format, KvDtype dtype, int block_size) {
    constexpr int kTokens = 90;
    std::vector<int> table;
    for (int i = (kTokens - 1) / block_size + 1; i > 0; --i) table.push_back(i);
    const int num_blocks = static_cast<int>(table.size()) + 1;
    Model one(tiny_config(), format, set, 1), three(tiny_config(), format, set, 3);
    fill(one);
    fill(three);
    KvCache whole_cache(one.config(), dtype, block_size, num_blocks, 2),
        cache(one.config(), dtype, block_size, num_blocks, 2);
    whole_cache.poison(table);
    cache.poison(table);
    const std::vector<float> whole = run_lane(one, whole_cache, 0, kTokens, table);
    std::vector<float> parts;
    for (int at = 0, step = 1; at < kTokens; at += step, step = std::min(3 * step, kTokens - at)) {
        const std::vector<float> part = run_lane(three, cache, at, step, table);
        parts.insert(parts.end(), part.begin(), part.end());
    }
    expect(whole.size() == parts.size() && std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) == 0,
           "chunks and threads change no bit");
    cache.swap_out({{1, 0}, {2, 1}});
    cache.copy({{1, 2}});
    cache.swap_in({{0, 1}, {1, 2}});
    expect_refused<std::invalid_argument>([&] { cache.copy({{0, num_blocks}}); }, "copy to a block that is not there");
}

void check_refusals() {
    const auto make = [](int num_threads, const char* set) {
        Model(tiny_config(), WeightFormat::kInt8, set, num_threads);
    };
    expect_refused<std::invalid_argument>([&] { make(0, "auto"); }, "no threads");
    expect_refused<std::invalid_argument>([&] { make(1, "none"); }, "unknown kernel set");
    expect_refused<std::bad_alloc>([] { KvCache(tiny_config(), KvDtype::kFloat32, 1 << 16, 1 << 26, 0); },
                                   "endless cache");
    Model model(tiny_config(), WeightFormat::kInt8, "auto", 2);
    const float value = 1.0f;
    expect_refused<std::invalid_argument>([&] { model.set_tensor("q", 0, &value, 1, 1); }, "a shape");
    expect_refused<std::invalid_argument>([&] { model.finish(); }, "a missing tensor");
    fill(model);
    const KvCache cache(model.config(), KvDtype::kInt8, 4, 3, 0);
    expect_refused<std::invalid_argument>([&] { run_lane(model, cache, 0, 5, {0}); }, "a short table");
    expect_refused<std::invalid_argument>([&] { run_lane(model, cache, 0, 5, {0, 3}); }, "a block that is not there");
    expect_refused<std::invalid_argument>([&] { run_lane(model, cache, 0, 8, {1, 1}); }, "a slot written twice");
    run_lane(model, cache, 0, 5, {2, 0});
}

}  // namespace

int main() {
    for (const std::string& set : runnable_kernel_sets()) {
        for (WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kInt8}) {
            for (KvDtype dtype : {KvDtype::kFloat32, KvDtype::kFloat16, KvDtype::kInt8}) {
                for (int block_size : {1, 16, 20}) check_chunks(set, format, dtype, block_size);
            }
        }
    }
    check_refusals();
    std::printf(num_failures == 0 ? "all well\n" : "%d failures\n", num_failures);
    return num_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
