#include <algorithm>

#include "model/step.h"

namespace headway {
namespace {

constexpr int kGroupRows = 12;  // query rows that attend together: two register tiles

std::size_t product(std::ptrdiff_t a, std::ptrdiff_t b) {
    return checked_product(static_cast<std::size_t>(a), static_cast<std::size_t>(b));
}

std::ptrdiff_t padded(int n) { return static_cast<std::ptrdiff_t>(round_up(static_cast<std::size_t>(n), kPad)); }

}  // namespace

void Workspace::reserve(const ModelConfig& config, const Weights& weights, const KernelSet& set, int num_rows,
                        int num_needed, int num_threads) {
    if (num_needed > num_needed_) {
        needed = ActRows(set, weights.format(), num_needed, config.hidden_size);
        num_needed_ = num_needed;
    }
    num_rows = std::max(num_rows, kRowChunk);  // a step without rows needs its threads' room, too
    if (num_rows <= num_rows_) return;
    num_rows_ = 0;  // until all of it is there: memory may run out half way
    hidden_stride = padded(config.hidden_size);
    attended_stride = padded(config.query_size());
    // A vector read may pass a row's end by less than kPad floats.
    wide_stride = padded(std::max(config.query_size() + 2 * config.kv_size(), 2 * config.ffn_size)) + kPad;
    padded_dim = static_cast<int>(padded(config.head_dim));
    const int shared_heads = config.num_heads / config.num_kv_heads;
    group_tokens = std::max(1, kGroupRows / shared_heads);
    // Floats are the widest form of a query: the same room serves caches of every dtype.
    const std::ptrdiff_t query_bytes = padded_dim * static_cast<std::ptrdiff_t>(sizeof(float));

    hidden = Array<float>(product(num_rows, hidden_stride));
    cos = Array<float>(product(num_rows, padded(config.rope_half())));
    sin = Array<float>(product(num_rows, padded(config.rope_half())));
    queries = Array<std::uint8_t>(product(num_rows, config.num_heads * query_bytes));
    query_scales = Array<float>(product(num_rows, config.num_heads));
    query_offsets = Array<std::int32_t>(product(num_rows, config.num_heads));

    const auto make_rows = [&](int count) {
        Rows rows;
        rows.acts = ActRows(set, weights.format(), count, std::max(config.hidden_size, config.query_size()));
        rows.gated = ActRows(set, weights.format(), count, config.ffn_size);
        rows.wide = Array<float>(product(count, wide_stride));
        rows.attended = Array<float>(product(count, attended_stride));
        return rows;
    };
    shared = make_rows(kRowChunk);
    const int group_rows = group_tokens * shared_heads;
    threads.clear();
    for (int i = 0; i < num_threads; ++i) {
        Thread thread;
        thread.rows = make_rows(kRowChunk);
        thread.append_scratch = Array<float>(product(3, padded_dim));
        thread.gate_scratch = Array<float>(product(1, padded(config.ffn_size)));
        thread.attend_out = Array<float>(product(group_rows, padded_dim));
        thread.attend_scratch = Array<std::uint8_t>(set.attend_scratch(group_rows, padded_dim));
        thread.queries = Array<std::uint8_t>(product(group_rows, query_bytes));
        thread.query_scales = Array<float>(static_cast<std::size_t>(group_rows));
        thread.query_offsets = Array<std::int32_t>(static_cast<std::size_t>(group_rows));
        thread.lengths.resize(static_cast<std::size_t>(group_rows));
        thread.groups.reserve(kRowChunk);
        thread.task_ends.reserve(static_cast<std::size_t>(num_rows) + 1);  // a task has a row at least
        threads.push_back(std::move(thread));
    }
    num_rows_ = num_rows;
}

}  // namespace headway
