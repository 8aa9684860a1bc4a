// One step's input as arrays, checked before anything runs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/range.h"
#include "model/kv_cache.h"

namespace headway {

/// Raw arrays from outside. Lane s owns rows cu_seqlens[s] to cu_seqlens[s + 1], the last of its contexts[s] tokens;
/// rows behind the last lane are computed and thrown away. needed_rows are those whose logits will be asked for.
struct BatchArrays {
    const std::int32_t* token_ids;
    int num_rows;
    const std::int32_t* cu_seqlens;
    const std::int32_t* contexts;
    int num_lanes;
    const std::int32_t* block_tables;  // num_lanes x table_width, unused entries anything
    int table_width;
    const std::int32_t* needed_rows;
    int num_needed;
};

/// One row of a step. `lane` is -1 for a row that is thrown away.
struct Row {
    std::int32_t token_id;
    int lane;
    int position;
    int block, slot;
};

/// Consecutive rows of one lane that attend together.
struct RowGroup {
    int first_row;
    int num_rows;
};

/// A batch that was found sound.
class Batch {
public:
    /// Throws std::invalid_argument saying which id, position or row is out of range, or that a slot is written twice.
    void assign(const BatchArrays& arrays, const ModelConfig& config, const KvCache& cache);

    int num_rows() const { return static_cast<int>(rows_.size()); }
    const Row& row(int index) const { return rows_[static_cast<std::size_t>(index)]; }
    const std::vector<int>& needed_rows() const { return needed_; }

    /// The smallest run of rows in [begin, end) that holds all needed ones of these; empty where there is none.
    Range needed_within(Range rows) const;

    const std::int32_t* block_table(int lane) const {
        return tables_.data() + static_cast<std::size_t>(lane) * static_cast<std::size_t>(table_width_);
    }

    /// The lanes' rows in [begin, end), cut into groups of at most max_rows that never cross a lane.
    void groups(int begin, int end, int max_rows, std::vector<RowGroup>& out) const;

private:
    void assign_lane(const BatchArrays& arrays, int lane, const KvCache& cache);
    void assign_needed(const BatchArrays& arrays);
    void check_slots(const KvCache& cache);

    std::vector<Row> rows_;
    std::vector<int> needed_;
    std::vector<std::int32_t> tables_;
    int table_width_ = 0;
    std::vector<std::uint32_t> written_;  // step number in which each slot was last written
    std::uint32_t step_ = 0;
};

}  // namespace headway
