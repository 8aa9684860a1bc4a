// What must be refused, with the error that says so, before anything is changed.
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "check.h"
#include "tiny_model.h"

namespace headway::test {
namespace {

using Refused = std::invalid_argument;

void check_configs(const ModelConfig& good) {
    const auto expect_bad = [&](auto&& change, const char* what) {
        ModelConfig config = good;
        change(config);
        expect_refused<Refused>([&] { Model(config, WeightFormat::kInt8, "auto", 1); }, what);
        expect_refused<Refused>([&] { KvCache(config, KvDtype::kInt8, 16, 1, 0); }, what);
    };
    expect_bad([](ModelConfig& c) { c.vocab_size = 0; }, "no vocabulary");
    expect_bad([](ModelConfig& c) { c.hidden_size = -1; }, "a negative width");
    expect_bad([](ModelConfig& c) { c.hidden_size = (1 << 17) - 1; }, "a width without even factors");
    expect_bad([](ModelConfig& c) { c.ffn_size = std::numeric_limits<int>::max(); }, "an endless width");
    expect_bad([](ModelConfig& c) { c.num_layers = 1 << 20; }, "too many layers");
    expect_bad([](ModelConfig& c) { c.num_kv_heads = 4; }, "heads that share unevenly");
    expect_bad([](ModelConfig& c) { c.rope_frequencies.clear(); }, "no rope");
    expect_bad([](ModelConfig& c) { c.rope_frequencies.resize(100); }, "more rope than head");
    expect_bad([](ModelConfig& c) { c.rope_frequencies[0] = NAN; }, "rope that is no number");
    expect_bad([](ModelConfig& c) { c.norm_eps = NAN; }, "an eps that is no number");
}

/// Matrices that fit one by one and not together.
void check_memory_of_weights(ModelConfig config) {
    config.hidden_size = config.ffn_size = 1 << 15;
    config.num_layers = 1024;
    expect_refused<std::bad_alloc>([&] { Model(config, WeightFormat::kInt8, "auto", 1); }, "more weights than memory");
}

void check_tensors(const TinyModel& tiny) {
    const float value = 1.0f;
    Model model(tiny.config, WeightFormat::kInt8, "auto", 2);
    const Tensor& norm = tiny.whole.at("norm");
    expect_refused<Refused>([&] { model.set_tensor("q", 0, &value, 1, 1); }, "a shape");
    expect_refused<Refused>([&] { model.set_tensor("rope", 0, &value, 1, 1); }, "a name");
    expect_refused<Refused>([&] { model.set_tensor("q", 9, &value, 1, 1); }, "a layer");
    expect_refused<Refused>([&] { model.set_tensor("q", -7, &value, 1, 1); }, "a negative layer");
    const Tensor& head = tiny.whole.at("head");
    expect_refused<Refused>([&] { model.set_tensor("head", -1, head.values.data(), head.rows, head.columns); },
                            "a matrix before its norm");
    expect_refused<Refused>([&] { model.finish(); }, "a missing tensor");
    const KvCache cache(tiny.config, KvDtype::kInt8, 4, 3, 0);
    expect_refused<Refused>([&] { run_lanes(model, cache, {{0, 2, {0}}}); }, "a model that is not finished");
    fill(model, tiny);
    expect_refused<Refused>([&] { model.set_tensor("norm", -1, norm.values.data(), 1, norm.columns); }, "too late");
}

void check_batches(const TinyModel& tiny) {
    Model model(tiny.config, WeightFormat::kInt8, "auto", 2);
    fill(model, tiny);
    const KvCache cache(tiny.config, KvDtype::kInt8, 4, 3, 0);
    const auto run = [&](const std::vector<Lane>& lanes) { return run_lanes(model, cache, lanes); };
    const std::vector<float> before = run({{0, 5, {2, 0}}});
    expect_refused<Refused>([&] { run({{0, 5, {0}}}); }, "a short table");
    expect_refused<Refused>([&] { run({{0, 5, {0, 3}}}); }, "a block that is not there");
    expect_refused<Refused>([&] { run({{0, 5, {0, -1}}}); }, "a negative block");
    expect_refused<Refused>([&] { run({{0, 8, {1, 1}}}); }, "a slot written twice");
    expect_refused<Refused>([&] { run({{0, 2, {1}}, {0, 1, {1}}}); }, "a slot written by two lanes");
    expect_refused<Refused>([&] { run({{0, 0, {1}}}); }, "a lane without rows");
    expect_refused<Refused>([&] { run({{-3, 2, {1}}}); }, "a context shorter than its rows");
    expect_refused<Refused>([&] { run({{1 << 30, 2, {1}}}); }, "an endless context");
    expect_refused<Refused>([&] { model.logits(0, 8, nullptr, nullptr); }, "logits of a step that was refused");
    expect_refused<Refused>([&] { model.logits(0, 6, nullptr, nullptr); }, "logits that were not kept");
    expect_refused<Refused>([&] { model.logits(-1, 1, nullptr, nullptr); }, "logits from before the first");
    const KvCache other(tiny_models()[0].config, KvDtype::kInt8, 4, 3, 0);
    expect_refused<Refused>([&] { run_lanes(model, other, {{0, 5, {2, 0}}}); }, "another model's cache");
    const std::vector<float> after = run({{0, 5, {2, 0}}});
    expect(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0, "a refusal leaves no trace");
}

/// Raw arrays that no caller of ours would make.
void check_arrays(const TinyModel& tiny) {
    Model model(tiny.config, WeightFormat::kInt8, "auto", 1);
    fill(model, tiny);
    const KvCache cache(tiny.config, KvDtype::kInt8, 4, 3, 0);
    const std::int32_t id = 0, table = 0, one = 1, zero = 0, far = 1 << 30;
    std::vector<float> logits(static_cast<std::size_t>(tiny.config.vocab_size));
    std::int32_t best = 0;
    using Ids = std::vector<std::int32_t>;
    const auto expect_bad = [&](std::int32_t token, Ids bounds, std::int32_t needed, int num_logits, const char* what) {
        const BatchArrays batch{&token, 1, bounds.data(), &one, 1, &table, 1, &needed, 1};
        expect_refused<Refused>([&] { model.run(batch, cache, num_logits, logits.data(), &best); }, what);
    };
    expect_bad(-1, {0, 1}, 0, 1, "a negative token");
    expect_bad(tiny.config.vocab_size, {0, 1}, 0, 1, "a token outside the vocabulary");
    expect_bad(0, {0, 2}, 0, 1, "a lane longer than the step");
    expect_bad(0, {-1, 1}, 0, 1, "a lane before the step");
    expect_bad(0, {0, -5}, 0, 1, "bounds that fall");
    expect_bad(0, {0, 1}, 1, 1, "a needed row that is not there");
    expect_bad(0, {0, 1}, far, 1, "a needed row far away");
    expect_bad(0, {0, 1}, -1, 1, "a negative needed row");
    expect_bad(0, {0, 1}, 0, 2, "more logits than needed rows");
    expect_bad(0, {0, 1}, 0, -1, "a negative number of logits");
    const BatchArrays empty{&id, 0, &zero, nullptr, 0, nullptr, 0, nullptr, 0};
    model.run(empty, cache, 0, nullptr, nullptr);
}

void check_caches(const ModelConfig& config) {
    expect_refused<Refused>([&] { KvCache(config, KvDtype::kInt8, 0, 1, 0); }, "no block size");
    expect_refused<Refused>([&] { KvCache(config, KvDtype::kInt8, 1 << 20, 1, 0); }, "an endless block");
    expect_refused<Refused>([&] { KvCache(config, KvDtype::kInt8, 16, -1, 0); }, "a negative pool");
    expect_refused<Refused>([&] { KvCache(config, KvDtype::kInt8, 16, 1, -1); }, "a negative host tier");
    expect_refused<std::bad_alloc>([&] { KvCache(config, KvDtype::kFloat32, 1 << 16, 1 << 26, 0); }, "endless memory");
    KvCache cache(config, KvDtype::kInt8, 16, 2, 1);
    expect_refused<Refused>([&] { cache.copy({{0, 1}, {0, 2}}); }, "a copy to nowhere");
    expect_refused<Refused>([&] { cache.copy({{-1, 0}}); }, "a copy from nowhere");
    expect_refused<Refused>([&] { cache.swap_out({{0, 1}}); }, "a host block that is not there");
    expect_refused<Refused>([&] { cache.swap_in({{-1, 0}}); }, "a negative host block");
    expect_refused<Refused>([&] { cache.poison({0, 2}); }, "a block that is not there");
}

}  // namespace

void check_refusals() {
    const TinyModel tiny = tiny_models()[1];
    expect_refused<Refused>([&] { Model(tiny.config, WeightFormat::kInt8, "auto", 0); }, "no threads");
    expect_refused<Refused>([&] { Model(tiny.config, WeightFormat::kInt8, "auto", 257); }, "too many threads");
    expect_refused<Refused>([&] { Model(tiny.config, WeightFormat::kInt8, "none", 1); }, "an unknown kernel set");
    check_configs(tiny.config);
    check_memory_of_weights(tiny.config);
    check_tensors(tiny);
    check_batches(tiny);
    check_arrays(tiny);
    check_caches(tiny.config);
}

}  // namespace headway::test
