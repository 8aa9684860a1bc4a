// A model that runs batches: the face of the native code.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "kernels/registry.h"
#include "model/step.h"

namespace headway {

/// Weights, threads and workspace of one model. Calls from several threads wait for each other. Everything wrong with
/// an argument is thrown before anything is changed.
class Model {
public:
    Model(const ModelConfig& config, WeightFormat format, const std::string& kernel_set, int num_threads);

    const ModelConfig& config() const { return config_; }
    const KernelSet& kernel_set() const { return set_; }
    int num_threads() const { return pool_.num_threads(); }
    std::size_t weight_bytes() const { return weights_.num_bytes(); }

    void set_tensor(const std::string& name, int layer, const float* values, int num_rows, int num_columns);

    /// Call once after the last tensor; throws std::invalid_argument when one is missing.
    void finish();

    /// Runs the batch: writes its keys and values into the cache and keeps the hidden states of the needed rows.
    void step(const BatchArrays& batch, const KvCache& cache);

    /// Logits of needed rows [first, first + num_rows) of the last step, num_rows x vocab_size, and each row's arg max.
    void logits(int first, int num_rows, float* out, std::int32_t* best);

    /// step, then logits of the first num_logits needed rows, in one go. `stage_seconds` is null, or kNumStages sums to
    /// which the calling thread's times are added.
    void run(const BatchArrays& batch, const KvCache& cache, int num_logits, float* out, std::int32_t* best,
             double* stage_seconds = nullptr);

private:
    void prepare(const BatchArrays& batch, const KvCache& cache);
    void head(Worker& worker, StageClock& clock, Range rows, float* out, std::int32_t* best) const;

    ModelConfig config_;
    const KernelSet& set_;
    ThreadPool pool_;
    Weights weights_;
    Workspace space_;
    Batch batch_;
    std::mutex mutex_;
    bool finished_ = false;
    int num_kept_ = 0;  // needed rows of the last step that ran
};

}  // namespace headway
