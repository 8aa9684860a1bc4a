// Sixteen lanes with AVX-512 F, BW, VL and DQ.
#pragma once

#ifdef HEADWAY_EMULATE_AVX512
#include "simd/emulate_avx512.h"
#else
#include <immintrin.h>
#endif

#include "simd/common.h"

namespace headway {
namespace {

/// Makes the compiler forget what a register holds.
template <class T>
HW_INLINE void hide(T& a) {
#ifdef HEADWAY_EMULATE_AVX512
    asm volatile("" : "+m"(a));
#else
    asm volatile("" : "+v"(a));
#endif
}

struct Vec {
    static constexpr int kLanes = 16;
    using F = __m512;
    using I = __m512i;

    static HW_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
    static HW_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a); }
    static HW_INLINE F load_half(const std::uint16_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static HW_INLINE void store_half(std::uint16_t* p, F a) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    }
    static HW_INLINE F set1(float x) { return _mm512_set1_ps(x); }
    static HW_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
    static HW_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static HW_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static HW_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
    static HW_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static HW_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
    static HW_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
    static HW_INLINE F abs(F a) {
        return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7FFFFFFF)));
    }
    /// Lanes below n come from a, the others from b.
    static HW_INLINE F select_first(int n, F a, F b) {
        const unsigned lanes = n >= 16 ? 0xFFFFu : n <= 0 ? 0u : (1u << n) - 1u;
        return _mm512_mask_mov_ps(b, static_cast<__mmask16>(lanes), a);
    }
    static HW_INLINE __m256 low(F a) { return _mm512_castps512_ps256(a); }
    static HW_INLINE __m256 high(F a) { return _mm512_extractf32x8_ps(a, 1); }
    static HW_INLINE float reduce_add(F a) {
        const __m256 h = _mm256_add_ps(low(a), high(a));
        __m128 r = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
        r = _mm_add_ps(r, _mm_movehl_ps(r, r));
        return _mm_cvtss_f32(_mm_add_ss(r, _mm_movehdup_ps(r)));
    }
    static HW_INLINE float reduce_max(F a) {
        const __m256 h = _mm256_max_ps(low(a), high(a));
        __m128 r = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
        r = _mm_max_ps(r, _mm_movehl_ps(r, r));
        return _mm_cvtss_f32(_mm_max_ss(r, _mm_movehdup_ps(r)));
    }

    static HW_INLINE I set1_int(std::int32_t x) { return _mm512_set1_epi32(x); }
    static HW_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
    static HW_INLINE std::int32_t reduce_add_int(I a) {
        const __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti32x8_epi32(a, 1));
        __m128i r = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
        r = _mm_add_epi32(r, _mm_shuffle_epi32(r, 0x4E));
        return _mm_cvtsi128_si32(_mm_add_epi32(r, _mm_shuffle_epi32(r, 0xB1)));
    }
    /// Nearest integer, ties to even. Values outside int32 give some integer, never a trap.
    static HW_INLINE I to_int(F a) { return _mm512_cvtps_epi32(a); }
    static HW_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
    /// 2^n for -126 <= n <= 127.
    static HW_INLINE F pow2(I n) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
    }
    static HW_INLINE void store_acts(std::int16_t* p, I a) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
    }
    static HW_INLINE void store_acts(std::int8_t* p, I a) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
    }
};

struct MatFloat {
    using Act = float;
    using Acc = __m512;
    static constexpr int kUnroll = 1;
    static constexpr int kBytes = 64;
    static HW_INLINE __m512 load(const std::uint8_t* p) { return _mm512_loadu_ps(reinterpret_cast<const float*>(p)); }
    static HW_INLINE __m512 broadcast(const float* a) { return _mm512_set1_ps(*a); }
    static HW_INLINE void step(Acc& c, __m512 w, __m512 a) { c = _mm512_fmadd_ps(w, a, c); }
};

struct MatHalf : MatFloat {
    static constexpr int kBytes = 32;
    static HW_INLINE __m512 load(const std::uint8_t* p) {
        return Vec::load_half(reinterpret_cast<const std::uint16_t*>(p));
    }
};

constexpr int kPanelVectors = 3;  // 48 outputs: common widths split evenly over two threads
constexpr int kRowTile = 8;

}  // namespace
}  // namespace headway
