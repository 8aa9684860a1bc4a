// How one token's key and value lie in a block, and how a tile is fetched from it.
//
// Grouped, sixteen slots g of a head lie together:  keys  [padded_dim / U][16][U]   values  [16 / U][padded_dim][U]
// where U is the number of k values that a product step takes (1 for floats). Not grouped: [slot][padded_dim] each.
#pragma once

#include "kernels/kernel_set.h"
#include "simd/common.h"

namespace headway {
namespace {

struct Float32Cache {
    using Element = float;
    using Keys = MatFloat;
    using Values = MatFloat;
};
struct Float16Cache {
    using Element = std::uint16_t;
    using Keys = MatHalf;
    using Values = MatHalf;
};
struct Int8Cache {
    using Element = std::int8_t;
    using Keys = MatInt8;
    using Values = MatValues8;
};

/// Spreads `dim` values of one key over its group.
template <class Cache>
HW_INLINE void put_key(typename Cache::Element* group, int place, const typename Cache::Element* key, int dim) {
    constexpr int U = Cache::Keys::kUnroll;
    struct Unit {
        typename Cache::Element v[U];
    };
    for (int d = 0; d < dim; d += U) store_as(group + d * kGroup + place * U, load_as<Unit>(key + d));
}

template <class Cache>
HW_INLINE void put_value(typename Cache::Element* group, int place, const typename Cache::Element* value, int dim) {
    constexpr int U = Cache::Values::kUnroll;
    typename Cache::Element* out = group + place / U * U * dim + place % U;
    for (int d = 0; d < dim; ++d) out[d * U] = value[d];
}

struct Slot {
    std::uint8_t* head;  // this kv head's part of the block
    int index;
};

HW_INLINE std::uint8_t* head_part(const KvView& kv, int block, int kv_head) {
    return kv.base + static_cast<std::size_t>(block) * kv.block_bytes +
           static_cast<std::size_t>(kv_head) * kv.head_bytes;
}

HW_INLINE float* slot_scales(const KvView& kv, std::uint8_t* head) {
    return reinterpret_cast<float*>(head + kv.scale_offset);
}

template <class Cache>
HW_INLINE void store_token(const KvView& kv, Slot slot, const typename Cache::Element* key,
                           const typename Cache::Element* value) {
    using Element = typename Cache::Element;
    const int dim = kv.padded_dim;
    Element* keys = reinterpret_cast<Element*>(slot.head);
    Element* values = reinterpret_cast<Element*>(slot.head + kv.value_offset);
    if (kv.grouped) {
        const int group = slot.index / kGroup * kGroup * dim;
        put_key<Cache>(keys + group, slot.index % kGroup, key, dim);
        put_value<Cache>(values + group, slot.index % kGroup, value, dim);
    } else {
        __builtin_memcpy(keys + slot.index * dim, key, sizeof(Element) * static_cast<std::size_t>(dim));
        __builtin_memcpy(values + slot.index * dim, value, sizeof(Element) * static_cast<std::size_t>(dim));
    }
}

/// Where the two groups of a tile are, and (int8) the tile's scales side by side.
struct Tile {
    const std::uint8_t* keys[2];
    const std::uint8_t* values[2];
    std::ptrdiff_t to_next[2];  // bytes from a group to the one in its place in the tile that is read next
    alignas(64) float key_scale[kTile];
    alignas(64) float log2_value_scale[kTile];
    alignas(64) float inverse_value_scale[kTile];
};

HW_INLINE void copy_scales(const KvView& kv, const std::uint8_t* head, int slot, int count, Tile& tile, int place) {
    const float* scales = reinterpret_cast<const float*>(head + kv.scale_offset);
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(count);
    __builtin_memcpy(tile.key_scale + place, scales + slot, bytes);
    __builtin_memcpy(tile.log2_value_scale + place, scales + kv.block_size + slot, bytes);
    __builtin_memcpy(tile.inverse_value_scale + place, scales + 2 * kv.block_size + slot, bytes);
}

/// Grouped blocks are read where they lie. A group past the sequence's end repeats the first: every row masks it.
template <class Cache>
HW_INLINE void point_at_tile(const AttendArgs& a, int first, int num_tokens, Tile& tile) {
    const KvView& kv = *a.kv;
    for (int g = 0; g < 2; ++g) {
        const int position = g * kGroup < num_tokens ? first + g * kGroup : first;
        const int slot = position % kv.block_size;
        const std::uint8_t* head = head_part(kv, a.block_table[position / kv.block_size], a.kv_head);
        const std::size_t at =
            sizeof(typename Cache::Element) * static_cast<std::size_t>(slot) * static_cast<std::size_t>(kv.padded_dim);
        tile.keys[g] = head + at;
        tile.values[g] = head + kv.value_offset + at;
        if constexpr (sizeof(typename Cache::Element) == 1) copy_scales(kv, head, slot, kGroup, tile, g * kGroup);
    }
}

/// Finds the tile that starts at `next`, or behind the last one the first of the next kv head, which is mostly computed
/// next. The hardware's prefetcher knows neither the block table nor what follows a page.
template <class Cache>
HW_INLINE void point_at_next(const AttendArgs& a, int next, Tile& tile) {
    const KvView& kv = *a.kv;
    const int length = a.lengths[a.num_rows - 1];
    const bool ends = next >= length;
    const int kv_head = ends ? a.kv_head + 1 : a.kv_head, first = ends ? 0 : next;
    tile.to_next[0] = tile.to_next[1] = 0;
    if (!kv.grouped || static_cast<std::size_t>(kv_head) * kv.head_bytes >= kv.block_bytes) return;
    for (int g = 0; g < 2; ++g) {
        const int position = first + g * kGroup < length ? first + g * kGroup : first;
        const std::size_t at = sizeof(typename Cache::Element) * static_cast<std::size_t>(position % kv.block_size) *
                               static_cast<std::size_t>(kv.padded_dim);
        tile.to_next[g] = head_part(kv, a.block_table[position / kv.block_size], kv_head) + at - tile.keys[g];
    }
}

/// Other block sizes: the tile's tokens are brought together token by token; the places past the end stay zero.
template <class Cache>
void gather_tile(const AttendArgs& a, int first, int num_tokens, std::uint8_t* scratch, Tile& tile) {
    using Element = typename Cache::Element;
    const KvView& kv = *a.kv;
    const int dim = kv.padded_dim;
    const std::size_t group_bytes = sizeof(Element) * kGroup * static_cast<std::size_t>(dim);
    __builtin_memset(scratch, 0, 4 * group_bytes);
    for (int t = 0; t < num_tokens; ++t) {
        const int slot = (first + t) % kv.block_size;
        const std::uint8_t* head = head_part(kv, a.block_table[(first + t) / kv.block_size], a.kv_head);
        Element* group = reinterpret_cast<Element*>(scratch + static_cast<std::size_t>(t / kGroup) * 2 * group_bytes);
        put_key<Cache>(group, t % kGroup, reinterpret_cast<const Element*>(head) + slot * dim, dim);
        put_value<Cache>(group + kGroup * dim, t % kGroup,
                         reinterpret_cast<const Element*>(head + kv.value_offset) + slot * dim, dim);
        if constexpr (sizeof(Element) == 1) copy_scales(kv, head, slot, 1, tile, t);
    }
    for (int g = 0; g < 2; ++g) {
        tile.keys[g] = scratch + static_cast<std::size_t>(g) * 2 * group_bytes;
        tile.values[g] = tile.keys[g] + group_bytes;
    }
}

template <class Cache>
HW_INLINE void fetch_tile(const AttendArgs& a, int first, int num_tokens, std::uint8_t* scratch, Tile& tile) {
    if (a.kv->grouped) {
        point_at_tile<Cache>(a, first, num_tokens, tile);
    } else {
        gather_tile<Cache>(a, first, num_tokens, scratch, tile);
    }
}

}  // namespace
}  // namespace headway
