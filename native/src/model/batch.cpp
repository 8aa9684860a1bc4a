#include "model/batch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace headway {
namespace {

/// Positions are turned into angles and array indices; no model comes near this many.
constexpr int kMostTokens = 1 << 27;

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

std::string lane_label(int lane) { return "lane " + std::to_string(lane); }

}  // namespace

void Batch::assign(const BatchArrays& arrays, const ModelConfig& config, const KvCache& cache) {
    rows_.clear();
    for (int i = 0; i < arrays.num_rows; ++i) {
        const std::int32_t token = arrays.token_ids[i];
        if (token < 0 || token >= config.vocab_size) {
            fail("token id " + std::to_string(token) + " of row " + std::to_string(i) +
                 " is outside the vocabulary of " + std::to_string(config.vocab_size));
        }
        rows_.push_back({token, -1, 0, 0, 0});
    }
    const std::int32_t* bounds = arrays.cu_seqlens;
    if (bounds[0] != 0 || bounds[arrays.num_lanes] > arrays.num_rows)
        fail("cu_seqlens must run from 0 to at most the rows");
    for (int lane = 0; lane < arrays.num_lanes; ++lane) {
        if (bounds[lane + 1] <= bounds[lane]) fail(lane_label(lane) + " has no rows");
    }
    table_width_ = arrays.table_width;
    tables_.assign(arrays.block_tables, arrays.block_tables + static_cast<std::size_t>(arrays.num_lanes) *
                                                                  static_cast<std::size_t>(table_width_));
    for (int lane = 0; lane < arrays.num_lanes; ++lane) assign_lane(arrays, lane, cache);
    assign_needed(arrays);
    check_slots(cache);
}

void Batch::assign_lane(const BatchArrays& arrays, int lane, const KvCache& cache) {
    const int begin = arrays.cu_seqlens[lane], end = arrays.cu_seqlens[lane + 1];
    const int context = arrays.contexts[lane];
    if (context < end - begin || context > kMostTokens) {
        fail(lane_label(lane) + " has " + std::to_string(end - begin) + " rows and a context of " +
             std::to_string(context));
    }
    const int num_blocks = (context - 1) / cache.block_size() + 1;
    if (num_blocks > table_width_) {
        fail(lane_label(lane) + ": " + std::to_string(table_width_) + " blocks do not cover " +
             std::to_string(context) + " tokens");
    }
    const std::int32_t* table = block_table(lane);
    for (int i = 0; i < num_blocks; ++i) {
        if (table[i] < 0 || table[i] >= cache.num_blocks()) {
            fail(lane_label(lane) + " uses block " + std::to_string(table[i]) + "; there are " +
                 std::to_string(cache.num_blocks()));
        }
    }
    for (int i = begin; i < end; ++i) {
        Row& row = rows_[static_cast<std::size_t>(i)];
        row.lane = lane;
        row.position = context - (end - i);
        row.block = table[row.position / cache.block_size()];
        row.slot = row.position % cache.block_size();
    }
}

void Batch::assign_needed(const BatchArrays& arrays) {
    needed_.assign(arrays.needed_rows, arrays.needed_rows + arrays.num_needed);
    for (int row : needed_) {
        if (row < 0 || row >= num_rows()) {
            fail("row " + std::to_string(row) + " is needed; the step has " + std::to_string(num_rows()));
        }
    }
}

void Batch::check_slots(const KvCache& cache) {
    const std::size_t num_slots =
        static_cast<std::size_t>(cache.num_blocks()) * static_cast<std::size_t>(cache.block_size());
    if (written_.size() != num_slots || ++step_ == 0) {
        written_.assign(num_slots, 0);
        step_ = 1;
    }
    for (const Row& row : rows_) {
        if (row.lane < 0) continue;
        std::uint32_t& last =
            written_[static_cast<std::size_t>(row.block) * static_cast<std::size_t>(cache.block_size()) +
                     static_cast<std::size_t>(row.slot)];
        if (last == step_)
            fail("slot " + std::to_string(row.slot) + " of block " + std::to_string(row.block) + " is written twice");
        last = step_;
    }
}

Range Batch::needed_within(Range rows) const {
    Range found{rows.end, rows.begin};
    for (int row : needed_) {
        if (row < rows.begin || row >= rows.end) continue;
        found = {std::min(found.begin, row), std::max(found.end, row + 1)};
    }
    return found.begin < found.end ? found : Range{rows.begin, rows.begin};
}

void Batch::groups(int begin, int end, int max_rows, std::vector<RowGroup>& out) const {
    out.clear();
    for (int i = begin; i < end; ++i) {
        const int lane = row(i).lane;
        if (lane < 0) continue;
        const bool joins = !out.empty() && out.back().num_rows < max_rows && row(out.back().first_row).lane == lane;
        if (joins) {
            ++out.back().num_rows;
        } else {
            out.push_back({i, 1});
        }
    }
}

}  // namespace headway
