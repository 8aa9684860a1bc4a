// Tiny random models of awkward shapes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/model.h"

namespace headway::test {

/// A weight matrix, rows x columns, or a vector of one row.
struct Tensor {
    int rows = 0, columns = 0;
    std::vector<float> values;
};

struct TinyModel {
    ModelConfig config;
    std::vector<std::map<std::string, Tensor>> layers;
    std::map<std::string, Tensor> whole;  // norm, embedding, head
};

/// Shapes that share no divisor with the kernels' tiles, with and without biases, norms of heads, a tied head, shared
/// key-value heads, and both ways of pairing features; the last is wide enough for every tile and transform.
std::vector<TinyModel> tiny_models();

/// Gives a new native model all tensors.
void fill(Model& model, const TinyModel& tiny);

/// Token `index` of a fixed text.
std::int32_t token_at(const ModelConfig& config, int index);

struct Lane {
    int first = 0, num_rows = 0;  // tokens first to first + num_rows of the text
    std::vector<int> table;
    int text = 0;  // tokens are shifted by so many
};

/// One step of these lanes and of wasted rows behind them; logits of the needed rows, in the order asked for.
std::vector<float> run_needed(Model& model, const KvCache& cache, const std::vector<Lane>& lanes,
                              const std::vector<int>& needed, int num_wasted = 0);

/// The same where every lane's rows are needed.
std::vector<float> run_lanes(Model& model, const KvCache& cache, const std::vector<Lane>& lanes, int num_wasted = 0);

}  // namespace headway::test
