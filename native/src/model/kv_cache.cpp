#include "model/kv_cache.h"

#include <cstring>
#include <stdexcept>

namespace headway {
namespace {

std::size_t element_bytes(KvDtype dtype) {
    switch (dtype) {
        case KvDtype::kFloat32: return 4;
        case KvDtype::kFloat16: return 2;
        case KvDtype::kInt8: return 1;
    }
    throw std::invalid_argument("unknown kv dtype");
}

KvView make_view(const ModelConfig& config, KvDtype dtype, int block_size) {
    const std::size_t dim = round_up(static_cast<std::size_t>(config.head_dim), kPad);
    const std::size_t slots = static_cast<std::size_t>(block_size);
    // Every part is a multiple of four bytes, which is all that the floats among them need.
    const std::size_t rows = slots * dim * element_bytes(dtype);
    const std::size_t scales = dtype == KvDtype::kInt8 ? 3 * slots * sizeof(float) : 0;
    KvView view{};
    view.head_bytes = 2 * rows + scales;
    view.block_bytes = view.head_bytes * static_cast<std::size_t>(config.num_kv_heads);
    view.value_offset = rows;
    view.scale_offset = 2 * rows;
    view.block_size = block_size;
    view.head_dim = config.head_dim;
    view.padded_dim = static_cast<int>(dim);
    view.dtype = dtype;
    view.grouped = block_size % kGroup == 0;
    return view;
}

void require_in(const char* name, int value, int least, int most) {
    if (value >= least && value <= most) return;
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + "; it must be " +
                                std::to_string(least) + " to " + std::to_string(most));
}

void require_block(const char* tier, int id, int num_blocks) {
    if (id >= 0 && id < num_blocks) return;
    throw std::invalid_argument(std::string(tier) + " block " + std::to_string(id) + " does not exist; there are " +
                                std::to_string(num_blocks));
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, KvDtype dtype, int block_size, int num_blocks, int num_host_blocks)
    : num_layers_(static_cast<std::size_t>(config.num_layers)),
      num_kv_heads_(config.num_kv_heads),
      block_size_(block_size),
      num_blocks_(num_blocks),
      num_host_blocks_(num_host_blocks) {
    config.check();
    require_in("block_size", block_size, 1, 1 << 16);
    require_in("num_blocks", num_blocks, 1, 1 << 26);
    require_in("num_host_blocks", num_host_blocks, 0, 1 << 26);
    view_ = make_view(config, dtype, block_size);
    device_ = Array<std::uint8_t>(checked_product(block_bytes(), static_cast<std::size_t>(num_blocks)));
    host_ = Array<std::uint8_t>(checked_product(block_bytes(), static_cast<std::size_t>(num_host_blocks)));
}

KvView KvCache::layer(int index) const {
    KvView view = view_;
    view.base =
        device_.data() + static_cast<std::size_t>(index) * view.block_bytes * static_cast<std::size_t>(num_blocks_);
    return view;
}

void KvCache::check_fits(const ModelConfig& config) const {
    const bool fits = num_layers_ == static_cast<std::size_t>(config.num_layers) &&
                      num_kv_heads_ == config.num_kv_heads && view_.head_dim == config.head_dim;
    if (!fits) throw std::invalid_argument("this cache was made for a model of another shape");
}

void KvCache::copy_layers(const BlockPairs& pairs, const Array<std::uint8_t>& from, const Array<std::uint8_t>& to,
                          int num_from, int num_to) {
    const std::size_t bytes = view_.block_bytes;
    for (const auto& [source, target] : pairs) {
        if (&from == &to && source == target) continue;
        for (std::size_t layer = 0; layer < num_layers_; ++layer) {
            const std::size_t read = layer * static_cast<std::size_t>(num_from) + static_cast<std::size_t>(source);
            const std::size_t write = layer * static_cast<std::size_t>(num_to) + static_cast<std::size_t>(target);
            std::memcpy(to.data() + write * bytes, from.data() + read * bytes, bytes);
        }
    }
}

void KvCache::copy(const BlockPairs& from_to) {
    for (const auto& [from, to] : from_to) {
        require_block("device", from, num_blocks_);
        require_block("device", to, num_blocks_);
    }
    copy_layers(from_to, device_, device_, num_blocks_, num_blocks_);
}

void KvCache::swap_out(const BlockPairs& device_host) {
    for (const auto& [device, host] : device_host) {
        require_block("device", device, num_blocks_);
        require_block("host", host, num_host_blocks_);
    }
    copy_layers(device_host, device_, host_, num_blocks_, num_host_blocks_);
}

void KvCache::swap_in(const BlockPairs& host_device) {
    for (const auto& [host, device] : host_device) {
        require_block("host", host, num_host_blocks_);
        require_block("device", device, num_blocks_);
    }
    copy_layers(host_device, host_, device_, num_host_blocks_, num_blocks_);
}

void KvCache::poison(const std::vector<int>& block_ids) {
    for (int id : block_ids) require_block("device", id, num_blocks_);
    for (int id : block_ids) {
        for (std::size_t layer = 0; layer < num_layers_; ++layer) {
            const std::size_t index = layer * static_cast<std::size_t>(num_blocks_) + static_cast<std::size_t>(id);
            std::memset(device_.data() + index * view_.block_bytes, 0xFF, view_.block_bytes);
        }
    }
}

}  // namespace headway
