#include "plain_model.h"

#include <algorithm>
#include <cmath>

namespace headway::test {
namespace {

using Row = std::vector<double>;

Row multiply(const Tensor& matrix, const Row& x) {
    Row out(static_cast<std::size_t>(matrix.rows), 0.0);
    for (std::size_t r = 0; r < out.size(); ++r) {
        const float* row = matrix.values.data() + r * x.size();
        for (std::size_t i = 0; i < x.size(); ++i) out[r] += static_cast<double>(row[i]) * x[i];
    }
    return out;
}

void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

Row normed(const double* x, const Tensor& weight, double eps) {
    const std::size_t n = weight.values.size();
    double squares = 0.0;
    for (std::size_t i = 0; i < n; ++i) squares += x[i] * x[i];
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    Row out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * factor * static_cast<double>(weight.values[i]);
    return out;
}

void rotate(const ModelConfig& c, double* head, int position) {
    const int half = c.rope_half();
    for (int i = 0; i < half; ++i) {
        const bool split = c.rope_pairs == RopePairs::kHalfSplit;
        double &a = head[split ? i : 2 * i], &b = head[split ? i + half : 2 * i + 1];
        const double angle = position * c.rope_frequencies[static_cast<std::size_t>(i)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
    }
}

class Layer {
public:
    Layer(const ModelConfig& config, const std::map<std::string, Tensor>& tensors) : c_(config), t_(tensors) {}

    /// Adds the layer's output to the hidden state of the token at `position`.
    void apply(Row& hidden, int position) {
        const Row x = normed(hidden.data(), t_.at("attn_norm"), static_cast<double>(c_.norm_eps));
        const Row queries = heads(x, "q", position);
        keys_.push_back(heads(x, "k", position));
        values_.push_back(heads(x, "v", position));
        add(hidden, multiply(t_.at("o"), attend(queries)));
        const Row y = normed(hidden.data(), t_.at("ffn_norm"), static_cast<double>(c_.norm_eps));
        Row gated = multiply(t_.at("gate"), y);
        const Row up = multiply(t_.at("up"), y);
        for (std::size_t i = 0; i < gated.size(); ++i) gated[i] *= up[i] / (1.0 + std::exp(-gated[i]));
        add(hidden, multiply(t_.at("down"), gated));
    }

private:
    Row heads(const Row& x, const std::string& name, int position) const {
        Row out = multiply(t_.at(name), x);
        if (c_.qkv_bias) {
            const Tensor& bias = t_.at(name + "_bias");
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<double>(bias.values[i]);
        }
        if (name == "v") return out;
        const std::size_t dim = static_cast<std::size_t>(c_.head_dim);
        for (std::size_t at = 0; at < out.size(); at += dim) {
            if (c_.qk_norm) {
                const Row head = normed(out.data() + at, t_.at(name + "_norm"), static_cast<double>(c_.norm_eps));
                std::copy(head.begin(), head.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
            }
            rotate(c_, out.data() + at, position);
        }
        return out;
    }

    Row attend(const Row& queries) const {
        const std::size_t dim = static_cast<std::size_t>(c_.head_dim);
        Row out(queries.size(), 0.0);
        for (std::size_t at = 0; at < queries.size(); at += dim) {
            const std::size_t shared = static_cast<std::size_t>(c_.num_heads / c_.num_kv_heads);
            const std::size_t from = at / dim / shared * dim;
            Row weights;
            for (const Row& key : keys_) {
                double score = 0.0;
                for (std::size_t i = 0; i < dim; ++i) score += queries[at + i] * key[from + i];
                weights.push_back(score / std::sqrt(static_cast<double>(dim)));
            }
            const double top = *std::max_element(weights.begin(), weights.end());
            double total = 0.0;
            for (double& weight : weights) total += weight = std::exp(weight - top);
            for (std::size_t t = 0; t < weights.size(); ++t) {
                for (std::size_t i = 0; i < dim; ++i) out[at + i] += weights[t] / total * values_[t][from + i];
            }
        }
        return out;
    }

    const ModelConfig& c_;
    const std::map<std::string, Tensor>& t_;
    std::vector<Row> keys_, values_;
};

}  // namespace

std::vector<double> plain_logits(const TinyModel& tiny, int num_tokens, int text) {
    std::vector<Layer> layers;
    for (const auto& tensors : tiny.layers) layers.emplace_back(tiny.config, tensors);
    const Tensor& embedding = tiny.whole.at("embedding");
    const Tensor& head = tiny.config.tied_embeddings ? embedding : tiny.whole.at("head");
    const double eps = static_cast<double>(tiny.config.norm_eps);
    std::vector<double> logits;
    for (int position = 0; position < num_tokens; ++position) {
        const auto from =
            embedding.values.begin() + std::ptrdiff_t{token_at(tiny.config, text + position)} * embedding.columns;
        Row hidden(from, from + embedding.columns);
        for (Layer& layer : layers) layer.apply(hidden, position);
        const Row out = multiply(head, normed(hidden.data(), tiny.whole.at("norm"), eps));
        logits.insert(logits.end(), out.begin(), out.end());
    }
    return logits;
}

}  // namespace headway::test
