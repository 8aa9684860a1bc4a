#include "model/config.h"

#include <cmath>
#include <stdexcept>

namespace headway {
namespace {

void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument(message);
}

void require_in(const char* name, int value, int most) {
    require(value >= 1 && value <= most,
            std::string(name) + " is " + std::to_string(value) + "; it must be 1 to " + std::to_string(most));
}

}  // namespace

void ModelConfig::check() const {
    require_in("vocab_size", vocab_size, 1 << 22);
    require_in("hidden_size", hidden_size, 1 << 17);  // int32 sums of 127 * levels products hold far beyond this
    int odd = hidden_size;  // the rotation of the residual stream keeps a matrix of odd x odd
    while (odd % 2 == 0) odd /= 2;
    require(odd < 1 << 12, "hidden_size is " + std::to_string(hidden_size) + ", whose largest odd factor is " +
                               std::to_string(odd) + "; it must be below 4096");
    require_in("ffn_size", ffn_size, 1 << 17);
    require_in("num_layers", num_layers, 1024);
    require_in("num_heads", num_heads, 1024);
    require_in("num_kv_heads", num_kv_heads, 1024);
    require_in("head_dim", head_dim, 1024);
    require_in("num_heads * head_dim", num_heads * head_dim, 1 << 17);
    require(num_heads % num_kv_heads == 0, "num_heads " + std::to_string(num_heads) +
                                               " is not a multiple of num_kv_heads " + std::to_string(num_kv_heads));
    require(rope_half() >= 1 && 2 * rope_half() <= head_dim, "rope_frequencies has " + std::to_string(rope_half()) +
                                                                 " entries; a head has room for 1 to " +
                                                                 std::to_string(head_dim / 2));
    for (double frequency : rope_frequencies) require(std::isfinite(frequency), "rope_frequencies must be finite");
    require(norm_eps > 0.0f && norm_eps < 1.0f, "norm_eps must be above 0 and below 1");
}

}  // namespace headway
