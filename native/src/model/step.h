// The forward pass over one batch.
#pragma once

#include <vector>

#include "core/stage_clock.h"
#include "core/thread_pool.h"
#include "model/batch.h"
#include "model/weights.h"

namespace headway {

/// Memory of a step, kept between steps and grown on demand.
class Workspace {
public:
    /// Activations of a run of rows: all of them when threads share columns, one thread's own when they split rows.
    struct Rows {
        ActRows acts;       // input of the next matrix
        ActRows gated;      // input of the down projection
        Array<float> wide;  // output of the qkv and the gate-up matrix
        Array<float> attended;
    };
    struct Thread {
        Rows rows;
        Array<float> append_scratch, gate_scratch, attend_out;
        Array<std::uint8_t> attend_scratch;
        Array<std::uint8_t> queries;  // of one row group and kv head, together
        Array<float> query_scales;
        Array<std::int32_t> query_offsets;
        std::vector<int> lengths;
        std::vector<RowGroup> groups;
        std::vector<int> task_ends;
    };

    void reserve(const ModelConfig& config, const Weights& weights, const KernelSet& set, int num_rows, int num_needed,
                 int num_threads);

    std::ptrdiff_t hidden_stride = 0, wide_stride = 0, attended_stride = 0;
    int padded_dim = 0;
    int group_tokens = 0;  // tokens of a lane that attend together
    Array<float> hidden;   // rows x hidden_stride: the residual stream
    Array<float> cos, sin;
    Array<std::uint8_t> queries;  // rows x heads x padded_dim: float, or quantised for an int8 cache
    Array<float> query_scales;
    Array<std::int32_t> query_offsets;
    ActRows needed;  // the needed rows behind the final norm
    Rows shared;
    std::vector<Thread> threads;

private:
    int num_rows_ = 0, num_needed_ = 0;
};

/// Rows that one thread computes alone, at most; also the height from which splitting by rows pays.
constexpr int kRowChunk = 64;

/// One pass of the model. Which of the two ways of sharing the work is taken changes no bit of the result.
class Step {
public:
    Step(const ModelConfig& config, const KernelSet& set, const Weights& weights, const KvCache& cache,
         const Batch& batch, Workspace& space);

    /// Called by every thread of the pool: writes the cache and leaves the needed rows ready for the head.
    void run(Worker& worker, StageClock& clock) const;

private:
    void embed(int row) const;
    void set_angles(int row) const;
    int head_splits(const std::vector<RowGroup>& groups, int num_threads) const;
    void run_by_columns(Worker& worker, StageClock& clock) const;
    void run_by_rows(Worker& worker, StageClock& clock) const;
    void finish_needed(Worker& worker, StageClock& clock) const;

    void norm_row(int row, const Array<float>& weight, const PackedMatrix& next, const ActRows& acts, int place) const;
    void append_row(int layer, int row, const float* qkv, Workspace::Thread& thread) const;
    void attend_group(int layer, const RowGroup& group, int kv_head, float* attended, int first_row,
                      Workspace::Thread& thread) const;
    void quantize_attended(const LayerWeights& layer, Workspace::Rows& rows, int place) const;
    void gate_row(const LayerWeights& layer, Workspace::Rows& rows, int place, Workspace::Thread& thread) const;
    void first_half(int layer, Range rows, Workspace::Thread& thread, StageClock& clock) const;
    void second_half(int layer, Range rows, Workspace::Thread& thread, StageClock& clock) const;
    void columns(Worker& worker, const PackedMatrix& matrix, const ActRows& acts, float* out, std::ptrdiff_t stride,
                 Epilogue epilogue) const;
    bool quantized() const { return weights_.format() == WeightFormat::kInt8; }
    float* hidden(int row) const { return space_.hidden.data() + row * space_.hidden_stride; }

    const ModelConfig& config_;
    const KernelSet& set_;
    const Weights& weights_;
    const KvCache& cache_;
    const Batch& batch_;
    Workspace& space_;
};

}  // namespace headway
