// Rotary positions, and one token's key and value into the cache.
#pragma once

#include "kernels/cache_slots.h"
#include "kernels/rows.h"

namespace headway {
namespace {

/// Rotates pairs (x[i], x[i + half]); dimensions past 2 * half stay.
HW_INLINE void rotate(float* x, int half, const float* cos, const float* sin) {
    int i = 0;
    for (; i + Vec::kLanes <= half; i += Vec::kLanes) {
        const Vec::F a = Vec::load(x + i), b = Vec::load(x + half + i), c = Vec::load(cos + i), s = Vec::load(sin + i);
        Vec::store(x + i, Vec::sub(Vec::mul(a, c), Vec::mul(b, s)));
        Vec::store(x + half + i, Vec::add(Vec::mul(b, c), Vec::mul(a, s)));
    }
    for (; i < half; ++i) {
        const float a = x[i], b = x[half + i];
        x[i] = a * cos[i] - b * sin[i];
        x[half + i] = b * cos[i] + a * sin[i];
    }
}

/// Copies one head, zero-padded, then normalises and rotates it.
HW_INLINE void prepare_head(const AppendArgs& a, const float* from, const float* norm, float* head) {
    const int dim = a.kv->head_dim;
    __builtin_memcpy(head, from, sizeof(float) * static_cast<std::size_t>(dim));
    for (int i = dim; i < a.kv->padded_dim; ++i) head[i] = 0.0f;
    if (norm != nullptr) {
        const float factor = inverse_rms(head, dim, a.norm_eps);
        for (int i = 0; i < dim; ++i) head[i] = head[i] * factor * norm[i];
    }
    rotate(head, a.rope_half, a.cos, a.sin);
}

HW_INLINE void scale_row(float* x, int n, float factor, float* out) {
    for (int i = 0; i < n; i += Vec::kLanes) Vec::store(out + i, Vec::mul(Vec::load(x + i), Vec::set1(factor)));
}

HW_INLINE void convert(const float* x, int n, float* out) {
    __builtin_memcpy(out, x, sizeof(float) * static_cast<std::size_t>(n));
}

/// Saturating: an infinity in one token's value would turn the zero weight of a masked neighbour into NaN.
HW_INLINE void convert(const float* x, int n, std::uint16_t* out) {
    const Vec::F top = Vec::set1(kHalfMax), bottom = Vec::set1(-kHalfMax);
    for (int i = 0; i < n; i += Vec::kLanes)
        Vec::store_half(out + i, Vec::max(Vec::min(Vec::load(x + i), top), bottom));
}

/// Quantises one key or value to int8 with its own scale, which is returned.
HW_INLINE float convert_int8(const float* x, int n, int offset, std::int8_t* out) {
    const float top = max_abs(x, n);
    const Vec::F inverse = Vec::set1(127.0f / top);
    alignas(64) std::int32_t q[Vec::kLanes];
    for (int i = 0; i < n; i += Vec::kLanes) {
        store_as(q, Vec::to_int(Vec::mul(Vec::load(x + i), inverse)));
        for (int j = 0; j < Vec::kLanes; ++j) out[i + j] = static_cast<std::int8_t>(q[j] + offset);
    }
    return top / 127.0f;
}

template <class Cache>
HW_INLINE void append_queries(const AppendArgs& a) {
    const int dim = a.kv->padded_dim;
    for (int h = 0; h < a.num_heads; ++h) {
        prepare_head(a, a.qkv + h * a.kv->head_dim, a.q_norm, a.scratch);
        if constexpr (sizeof(typename Cache::Element) == 1) {
            using Act = MatInt8::Act;
            const QuantizedRow row{static_cast<Act*>(a.queries) + h * dim, a.query_scales + h, a.query_offsets + h,
                                   a.query_levels};
            quantize_by_max<Act>(a.scratch, dim, a.query_scale, row);
        } else {
            scale_row(a.scratch, dim, a.query_scale, static_cast<float*>(a.queries) + h * dim);
        }
    }
}

template <class Cache>
void append_as(const AppendArgs& a) {
    using Element = typename Cache::Element;
    const KvView& kv = *a.kv;
    const int dim = kv.padded_dim;
    append_queries<Cache>(a);
    const float* keys = a.qkv + a.num_heads * kv.head_dim;
    const float* values = keys + a.num_kv_heads * kv.head_dim;
    Element* key = reinterpret_cast<Element*>(a.scratch + dim);
    Element* value = reinterpret_cast<Element*>(a.scratch + 2 * dim);
    for (int h = 0; h < a.num_kv_heads; ++h) {
        const Slot slot{head_part(kv, a.block, h), a.slot};
        prepare_head(a, keys + h * kv.head_dim, a.k_norm, a.scratch);
        if constexpr (sizeof(Element) == 1) {
            float* scales = slot_scales(kv, slot.head) + a.slot;
            scales[0] = convert_int8(a.scratch, dim, MatInt8::kWeightOffset, key);
            __builtin_memset(a.scratch, 0, sizeof(float) * static_cast<std::size_t>(dim));
            __builtin_memcpy(a.scratch, values + h * kv.head_dim,
                             sizeof(float) * static_cast<std::size_t>(kv.head_dim));
            const float value_scale = convert_int8(a.scratch, dim, 0, value);
            scales[kv.block_size] = __builtin_log2f(value_scale);
            scales[2 * kv.block_size] = 1.0f / value_scale;
        } else {
            convert(a.scratch, dim, key);
            __builtin_memset(a.scratch, 0, sizeof(float) * static_cast<std::size_t>(dim));
            __builtin_memcpy(a.scratch, values + h * kv.head_dim,
                             sizeof(float) * static_cast<std::size_t>(kv.head_dim));
            convert(a.scratch, dim, value);
        }
        store_token<Cache>(kv, slot, key, value);
    }
}

void append(const AppendArgs& a) {
    switch (a.kv->dtype) {
        case KvDtype::kFloat32: return append_as<Float32Cache>(a);
        case KvDtype::kFloat16: return append_as<Float16Cache>(a);
        case KvDtype::kInt8: return append_as<Int8Cache>(a);
    }
}

}  // namespace
}  // namespace headway
