// Invisible scheduling: a sequence's logits are those of its solo run, bit for bit.
#include <algorithm>
#include <cstring>
#include <future>

#include "check.h"
#include "tiny_model.h"

namespace headway::test {
namespace {

constexpr int kTokens = 90, kOthers = 41;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.empty() || b.empty()) return a.empty() && b.empty();  // memcmp takes no null pointers
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> rows_of(const std::vector<float>& logits, const Model& model, int begin, int end) {
    const std::ptrdiff_t vocab = model.config().vocab_size;
    return {logits.begin() + begin * vocab, logits.begin() + end * vocab};
}

/// Block ids `first`, `first` - 1, ... that hold so many tokens.
std::vector<int> falling_table(int first, int num_tokens, int block_size) {
    std::vector<int> table;
    for (int i = 0; i * block_size < num_tokens; ++i) table.push_back(first - i);
    return table;
}

struct Case {
    const TinyModel& tiny;
    std::string set;
    WeightFormat format;
    KvDtype dtype;
};

void poison_all(KvCache& cache) {
    std::vector<int> all;
    for (int i = 0; i < cache.num_blocks(); ++i) all.push_back(i);
    cache.poison(all);
}

/// Chunks of growing length, company, other threads, block sizes and places, NaN wherever nothing was written.
void check_mix(const Case& c, Model& model, const std::vector<float>& solo, int block_size) {
    const int num_blocks = (kTokens + kOthers) / block_size + 4;
    KvCache cache(c.tiny.config, c.dtype, block_size, num_blocks, 0);
    poison_all(cache);
    const std::vector<int> table = falling_table(num_blocks - 1, kTokens, block_size);
    const std::vector<int> others = falling_table(table.back() - 1, kOthers, block_size);
    std::vector<float> parts;
    for (int at = 0, step = 1, other = 0; at < kTokens; at += step, step = std::min(3 * step, kTokens - at)) {
        std::vector<Lane> lanes = {{at, step, table}};
        const int more = std::min(kOthers - other, step + 2);
        if (more > 0) lanes.insert(lanes.begin() + step % 2, {other, more, others, 13});
        const int before = more > 0 && step % 2 == 0 ? more : 0;
        const std::vector<float> logits = run_lanes(model, cache, lanes, step % 3);
        const std::vector<float> part = rows_of(logits, model, before, before + step);
        parts.insert(parts.end(), part.begin(), part.end());
        other += std::max(0, more);
    }
    expect(same_bits(solo, parts), "chunks, company, threads and blocks change no bit", c.set.c_str());
}

/// A prefix goes on from copied blocks, from blocks that were swapped out and in, and unharmed by its fork.
void check_moves(const Case& c, Model& model, const std::vector<float>& solo) {
    constexpr int kBlock = 16, kPrefix = 3 * kBlock;
    KvCache cache(c.tiny.config, c.dtype, kBlock, 16, 3);
    poison_all(cache);
    run_lanes(model, cache, {{0, kPrefix, {1, 2, 3}}});
    cache.swap_out({{1, 2}, {2, 0}, {3, 1}});
    cache.copy({{1, 4}, {2, 5}, {3, 6}, {6, 6}});
    cache.poison({1, 2, 3});
    cache.swap_in({{2, 9}, {0, 8}, {1, 7}});
    const std::vector<float> want = rows_of(solo, model, kPrefix, kTokens);
    // The fork shares two blocks, owns a copy of the third and writes other tokens behind it.
    run_lanes(model, cache, {{kPrefix - 1, kBlock + 1, {9, 8, 6, 10}, 5}});
    for (const std::vector<int>& table : {std::vector<int>{9, 8, 7, 11, 12, 13}, {4, 5, 7, 14, 15, 0}}) {
        expect(same_bits(run_lanes(model, cache, {{kPrefix, kTokens - kPrefix, table}}), want),
               "blocks move with their tokens", c.set.c_str());
    }
}

void check_case(const Case& c) {
    Model one(c.tiny.config, c.format, c.set, 1), three(c.tiny.config, c.format, c.set, 3);
    fill(one, c.tiny);
    fill(three, c.tiny);
    KvCache cache(c.tiny.config, c.dtype, 32, 3, 0);
    poison_all(cache);
    const std::vector<float> solo = run_lanes(one, cache, {{0, kTokens, {0, 1, 2}}});
    for (int block_size : {1, 16, 20, 48}) check_mix(c, three, solo, block_size);
    check_moves(c, three, solo);
}

/// Hundreds of rows at once, so that threads share tasks of every size: no bit differs from small steps on one thread.
void check_many_rows(const TinyModel& tiny) {
    constexpr int kRows = 430, kSmall = 43, kBlock = 16;
    const int num_blocks = kRows / kBlock + 8;
    const auto fresh = [&] {
        KvCache cache(tiny.config, KvDtype::kInt8, kBlock, num_blocks, 0);
        poison_all(cache);
        return cache;
    };
    const std::vector<int> table = falling_table(num_blocks - 1, kRows, kBlock), others = {0, 1, 2};
    Model one(tiny.config, WeightFormat::kInt8, "auto", 1);
    fill(one, tiny);
    KvCache small_steps = fresh();
    std::vector<float> want;
    for (int at = 0; at < kRows; at += kSmall) {
        const std::vector<float> part = run_lanes(one, small_steps, {{at, kSmall, table}});
        want.insert(want.end(), part.begin(), part.end());
    }
    for (int num_threads : {1, 2, 8}) {
        Model model(tiny.config, WeightFormat::kInt8, "auto", num_threads);
        fill(model, tiny);
        KvCache cache = fresh();
        const std::vector<float> all = run_lanes(model, cache, {{0, kRows, table}, {0, 5, others, 13}}, 2);
        expect(same_bits(rows_of(all, model, 0, kRows), want), "many rows and threads change no bit");
    }
}

/// Many rows of which few are needed, in any order, or none: the last layer leaves the others out, and no bit differs
/// of the needed ones or of what later steps read from the cache.
void check_few_needed(const TinyModel& tiny) {
    constexpr int kRows = 300, kFirst = 170, kOther = 5, kBlock = 16;
    const int num_blocks = kRows / kBlock + 8;
    const std::vector<int> table = falling_table(num_blocks - 1, kRows, kBlock), other = {0};
    Model one(tiny.config, WeightFormat::kInt8, "auto", 1);
    fill(one, tiny);
    KvCache whole(tiny.config, KvDtype::kInt8, kBlock, num_blocks, 0);
    poison_all(whole);
    const std::vector<float> all = run_lanes(one, whole, {{0, kRows, table}, {0, kOther, other, 13}});
    const std::vector<std::vector<int>> choices = {
        {}, {0}, {kFirst - 1}, {kFirst + kOther - 1, 0}, {90, 3, 90, 91, 160}};
    for (const int num_threads : {1, 3}) {
        Model model(tiny.config, WeightFormat::kInt8, "auto", num_threads);
        fill(model, tiny);
        for (const std::vector<int>& needed : choices) {
            KvCache cache(tiny.config, KvDtype::kInt8, kBlock, num_blocks, 0);
            poison_all(cache);
            std::vector<float> want;
            for (const int row : needed) {
                const int at = row < kFirst ? row : row - kFirst + kRows;
                const std::vector<float> part = rows_of(all, model, at, at + 1);
                want.insert(want.end(), part.begin(), part.end());
            }
            const std::vector<Lane> lanes = {{0, kFirst, table}, {0, kOther, other, 13}};
            expect(same_bits(run_needed(model, cache, lanes, needed, 3), want), "needed rows among many");
            const std::vector<float> rest = run_lanes(model, cache, {{kFirst, kRows - kFirst, table}});
            expect(same_bits(rest, rows_of(all, model, kFirst, kRows)), "rows behind those that nobody needed");
        }
    }
}

/// Calls from several threads wait for each other.
void check_callers(const TinyModel& tiny) {
    Model model(tiny.config, WeightFormat::kInt8, "auto", 2);
    fill(model, tiny);
    std::vector<std::future<std::vector<float>>> callers;
    for (int i = 0; i < 3; ++i) {
        callers.push_back(std::async(std::launch::async, [&] {
            KvCache cache(tiny.config, KvDtype::kFloat16, 16, 2, 0);
            std::vector<float> logits;
            for (int repeat = 0; repeat < 10; ++repeat) logits = run_lanes(model, cache, {{0, 20, {1, 0}}});
            return logits;
        }));
    }
    const std::vector<float> first = callers[0].get();
    for (std::size_t i = 1; i < callers.size(); ++i) {
        expect(same_bits(callers[i].get(), first), "callers do not see each other");
    }
}

}  // namespace

void check_bits() {
    const std::vector<TinyModel> models = tiny_models();
    for (const TinyModel& tiny : models) {
        for (const std::string& set : runnable_kernel_sets()) {
            for (WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kInt8}) {
                for (KvDtype dtype : {KvDtype::kFloat32, KvDtype::kFloat16, KvDtype::kInt8}) {
                    check_case({tiny, set, format, dtype});
                }
            }
        }
    }
    check_many_rows(models[1]);
    check_few_needed(models[1]);
    check_few_needed(models.back());  // its first layer is its last
    check_callers(models[1]);
}

}  // namespace headway::test
