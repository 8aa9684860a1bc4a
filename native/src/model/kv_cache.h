// The paged cache of keys and values, and its host tier.
#pragma once

#include <utility>
#include <vector>

#include "core/buffer.h"
#include "model/config.h"

namespace headway {

using BlockPairs = std::vector<std::pair<int, int>>;

/// num_blocks blocks of block_size tokens, and num_host_blocks to move them to. Memory is taken when first written.
/// Throws std::invalid_argument for sizes that cannot be, std::bad_alloc when they do not fit in memory.
class KvCache {
public:
    KvCache(const ModelConfig& config, KvDtype dtype, int block_size, int num_blocks, int num_host_blocks);

    int block_size() const { return block_size_; }
    int num_blocks() const { return num_blocks_; }
    KvDtype dtype() const { return view_.dtype; }

    /// Bytes of one block over all layers.
    std::size_t block_bytes() const { return view_.block_bytes * num_layers_; }

    KvView layer(int index) const;

    /// Throws std::invalid_argument when a model of this config cannot use this cache.
    void check_fits(const ModelConfig& config) const;

    // Each checks every id first and throws std::invalid_argument before anything is copied.
    void copy(const BlockPairs& from_to);
    void swap_out(const BlockPairs& device_host);
    void swap_in(const BlockPairs& host_device);

    /// Fills device blocks with NaN (255 in every byte): a slot read before it was written then shows in the logits.
    void poison(const std::vector<int>& block_ids);

private:
    void copy_layers(const BlockPairs& pairs, const Array<std::uint8_t>& from, const Array<std::uint8_t>& to,
                     int num_from, int num_to);
    std::size_t num_layers_;
    int num_kv_heads_;
    int block_size_;
    int num_blocks_;
    int num_host_blocks_;
    KvView view_;
    Array<std::uint8_t> device_;
    Array<std::uint8_t> host_;
};

}  // namespace headway
