#include "model/model.h"

#include <algorithm>
#include <stdexcept>

namespace headway {
namespace {

constexpr int kHeadSlices = 8;  // per thread

const ModelConfig& checked(const ModelConfig& config) {
    config.check();
    return config;
}

}  // namespace

Model::Model(const ModelConfig& config, WeightFormat format, const std::string& kernel_set, int num_threads)
    : config_(checked(config)),
      set_(find_kernel_set(kernel_set)),
      pool_(num_threads),
      weights_(config_, format, set_) {}

void Model::set_tensor(const std::string& name, int layer, const float* values, int num_rows, int num_columns) {
    const std::lock_guard lock(mutex_);
    if (finished_) throw std::invalid_argument("the model is finished; it takes no more tensors");
    weights_.set(name, layer, values, num_rows, num_columns, pool_);
}

void Model::finish() {
    const std::lock_guard lock(mutex_);
    weights_.check_complete();
    finished_ = true;
}

void Model::prepare(const BatchArrays& batch, const KvCache& cache) {
    if (!finished_) throw std::invalid_argument("the model is not finished: call finish() after the last tensor");
    cache.check_fits(config_);
    batch_.assign(batch, config_, cache);
    num_kept_ = 0;
    space_.reserve(config_, weights_, set_, batch_.num_rows(), batch.num_needed, pool_.num_threads());
}

void Model::head(Worker& worker, StageClock& clock, Range rows, float* out, std::int32_t* best) const {
    const PackedMatrix& matrix = weights_.head();
    const int count = std::min(matrix.num_panels(), worker.num_threads() * kHeadSlices);
    const std::ptrdiff_t stride = config_.vocab_size;
    worker.for_each(count, [&](int i) {
        const Range panels{matrix.num_panels() * i / count, matrix.num_panels() * (i + 1) / count};
        matrix.multiply(space_.needed, out, stride, Epilogue::kStore, rows, panels);
    });
    clock.mark(Stage::kHead);
    worker.for_each(rows.end - rows.begin,
                    [&](int i) { best[i] = set_.argmax(out + i * stride, config_.vocab_size); });
    clock.mark(Stage::kArgmax);
}

void Model::step(const BatchArrays& batch, const KvCache& cache) { run(batch, cache, 0, nullptr, nullptr); }

void Model::logits(int first, int num_rows, float* out, std::int32_t* best) {
    const std::lock_guard lock(mutex_);
    if (first < 0 || num_rows < 0 || first > num_kept_ - num_rows) {
        throw std::invalid_argument("logits of " + std::to_string(num_rows) + " rows from " + std::to_string(first) +
                                    "; the last step kept " + std::to_string(num_kept_));
    }
    pool_.run([&](Worker& worker) {
        StageClock clock(nullptr);
        head(worker, clock, {first, first + num_rows}, out, best);
    });
}

void Model::run(const BatchArrays& batch, const KvCache& cache, int num_logits, float* out, std::int32_t* best,
                double* stage_seconds) {
    const std::lock_guard lock(mutex_);
    if (num_logits < 0 || num_logits > batch.num_needed) {
        throw std::invalid_argument("logits of " + std::to_string(num_logits) + " rows; the step needs " +
                                    std::to_string(batch.num_needed));
    }
    prepare(batch, cache);
    const Step step(config_, set_, weights_, cache, batch_, space_);
    pool_.run([&](Worker& worker) {
        StageClock clock(worker.index() == 0 ? stage_seconds : nullptr);
        step.run(worker, clock);
        if (num_logits > 0) head(worker, clock, {0, num_logits}, out, best);
    });
    num_kept_ = batch.num_needed;
}

}  // namespace headway
