// Eight lanes with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include "simd/common.h"

namespace headway {
namespace {

/// Makes the compiler forget what a register holds.
template <class T>
HW_INLINE void hide(T& a) {
    asm volatile("" : "+x"(a));
}

struct Vec {
    static constexpr int kLanes = 8;
    using F = __m256;
    using I = __m256i;

    static HW_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
    static HW_INLINE void store(float* p, F a) { _mm256_storeu_ps(p, a); }
    static HW_INLINE F load_half(const std::uint16_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static HW_INLINE void store_half(std::uint16_t* p, F a) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    }
    static HW_INLINE F set1(float x) { return _mm256_set1_ps(x); }
    static HW_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
    static HW_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static HW_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static HW_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
    static HW_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static HW_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
    static HW_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
    static HW_INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
    /// Lanes below n come from a, the others from b.
    static HW_INLINE F select_first(int n, F a, F b) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)));
    }
    static HW_INLINE float reduce_add(F a) {
        __m128 r = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        r = _mm_add_ps(r, _mm_movehl_ps(r, r));
        return _mm_cvtss_f32(_mm_add_ss(r, _mm_movehdup_ps(r)));
    }
    static HW_INLINE float reduce_max(F a) {
        __m128 r = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        r = _mm_max_ps(r, _mm_movehl_ps(r, r));
        return _mm_cvtss_f32(_mm_max_ss(r, _mm_movehdup_ps(r)));
    }

    static HW_INLINE I set1_int(std::int32_t x) { return _mm256_set1_epi32(x); }
    static HW_INLINE I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
    static HW_INLINE std::int32_t reduce_add_int(I a) {
        __m128i r = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        r = _mm_add_epi32(r, _mm_shuffle_epi32(r, 0x4E));
        return _mm_cvtsi128_si32(_mm_add_epi32(r, _mm_shuffle_epi32(r, 0xB1)));
    }
    /// Nearest integer, ties to even. Values outside int32 give some integer, never a trap.
    static HW_INLINE I to_int(F a) { return _mm256_cvtps_epi32(a); }
    static HW_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
    /// 2^n for -126 <= n <= 127.
    static HW_INLINE F pow2(I n) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
    }
    static HW_INLINE void store_acts(std::int16_t* p, I a) {
        const __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
    }
};

/// Pairs of int8 weights against pairs of int16 activations. vpmaddwd is exact where vpmaddubsw would saturate, and
/// leaves 16 bits for activations: they keep more levels than int8 would give them, at no cost.
struct MatInt8 {
    using Act = std::int16_t;
    using Acc = __m256i;
    static constexpr int kUnroll = 2;
    static constexpr int kBytes = 16;
    static constexpr int kWeightOffset = 0;
    static constexpr int kActLevels = 16383;
    static constexpr int kProbLevels = 32767;

    static HW_INLINE __m256i load(const std::uint8_t* p) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static HW_INLINE __m256i broadcast(const Act* a) { return _mm256_set1_epi32(load_as<std::int32_t>(a)); }
    static HW_INLINE void step(Acc& c, __m256i w, __m256i a) { c = _mm256_add_epi32(c, _mm256_madd_epi16(w, a)); }
};
using MatValues8 = MatInt8;

struct MatFloat {
    using Act = float;
    using Acc = __m256;
    static constexpr int kUnroll = 1;
    static constexpr int kBytes = 32;
    static HW_INLINE __m256 load(const std::uint8_t* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
    static HW_INLINE __m256 broadcast(const float* a) { return _mm256_broadcast_ss(a); }
    static HW_INLINE void step(Acc& c, __m256 w, __m256 a) { c = _mm256_fmadd_ps(w, a, c); }
};

struct MatHalf : MatFloat {
    static constexpr int kBytes = 16;
    static HW_INLINE __m256 load(const std::uint8_t* p) {
        return Vec::load_half(reinterpret_cast<const std::uint16_t*>(p));
    }
};

constexpr int kPanelVectors = 2;
constexpr int kRowTile = 6;

}  // namespace
}  // namespace headway
