// For tests on processors without AVX-512: the instructions that vec_avx512.h uses, as pairs of AVX2 ones, lane for
// lane.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace headway {
namespace {
namespace emulated {

struct F512 {
    __m256 low, high;
};
struct I512 {
    __m256i low, high;
};
using Mask = std::uint16_t;

#define HW_PAIR(type, name, op) \
    inline type name(type a, type b) { return {op(a.low, b.low), op(a.high, b.high)}; }
HW_PAIR(F512, add_ps, _mm256_add_ps)
HW_PAIR(F512, sub_ps, _mm256_sub_ps)
HW_PAIR(F512, mul_ps, _mm256_mul_ps)
HW_PAIR(F512, div_ps, _mm256_div_ps)
HW_PAIR(F512, max_ps, _mm256_max_ps)
HW_PAIR(F512, min_ps, _mm256_min_ps)
HW_PAIR(I512, add_epi32, _mm256_add_epi32)
HW_PAIR(I512, and_si512, _mm256_and_si256)
HW_PAIR(I512, madd_epi16, _mm256_madd_epi16)
#undef HW_PAIR

inline F512 loadu_ps(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void storeu_ps(float* p, F512 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}
inline I512 loadu_si512(const void* p) {
    const __m256i* at = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
inline F512 set1_ps(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline I512 set1_epi32(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F512 fmadd_ps(F512 a, F512 b, F512 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F512 castsi512_ps(I512 a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
inline I512 castps_si512(F512 a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
inline __m256 low_ps(F512 a) { return a.low; }
inline __m256 high_ps(F512 a) { return a.high; }
inline __m256i low_si256(I512 a) { return a.low; }
inline __m256i high_si256(I512 a) { return a.high; }
inline I512 cvtps_epi32(F512 a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
inline F512 cvtepi32_ps(I512 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline I512 slli_epi32(I512 a, int n) { return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)}; }
inline F512 cvtph_ps(__m256i a) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}
inline __m256i cvtps_ph(F512 a) {
    const __m128i low = _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT);
    return _mm256_set_m128i(_mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT), low);
}
inline I512 cvtepi8_epi16(__m256i a) {
    return {_mm256_cvtepi8_epi16(_mm256_castsi256_si128(a)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1))};
}

/// The low bits of each lane, as vpmovdw and vpmovdb keep them.
template <class Narrow, class Vector>
inline Vector narrow(I512 a) {
    alignas(32) std::int32_t wide[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(wide), a.low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(wide) + 1, a.high);
    alignas(32) Narrow lanes[16];
    for (int i = 0; i < 16; ++i) lanes[i] = static_cast<Narrow>(wide[i]);
    Vector packed;
    __builtin_memcpy(&packed, lanes, sizeof packed);
    return packed;
}

inline F512 mask_mov_ps(F512 a, Mask mask, F512 b) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const auto chosen = [&](int shift) {
        return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask >> shift), bits), bits));
    };
    return {_mm256_blendv_ps(a.low, b.low, chosen(0)), _mm256_blendv_ps(a.high, b.high, chosen(8))};
}

/// c + sums of four u8 * s8 products: even and odd bytes are widened, so that nothing saturates.
inline __m256i dpbusd(__m256i c, __m256i u8, __m256i s8) {
    const __m256i byte = _mm256_set1_epi16(0xFF);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u8, byte), _mm256_srai_epi16(_mm256_slli_epi16(s8, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u8, 8), _mm256_srai_epi16(s8, 8));
    return _mm256_add_epi32(c, _mm256_add_epi32(even, odd));
}
inline I512 dpbusd(I512 c, I512 u8, I512 s8) {
    return {dpbusd(c.low, u8.low, s8.low), dpbusd(c.high, u8.high, s8.high)};
}

}  // namespace emulated
}  // namespace
}  // namespace headway

#define __m512 headway::emulated::F512
#define __m512i headway::emulated::I512
#define __mmask16 headway::emulated::Mask
#define _mm512_loadu_ps headway::emulated::loadu_ps
#define _mm512_storeu_ps headway::emulated::storeu_ps
#define _mm512_loadu_si512 headway::emulated::loadu_si512
#define _mm512_set1_ps headway::emulated::set1_ps
#define _mm512_set1_epi32 headway::emulated::set1_epi32
#define _mm512_add_ps headway::emulated::add_ps
#define _mm512_sub_ps headway::emulated::sub_ps
#define _mm512_mul_ps headway::emulated::mul_ps
#define _mm512_div_ps headway::emulated::div_ps
#define _mm512_max_ps headway::emulated::max_ps
#define _mm512_min_ps headway::emulated::min_ps
#define _mm512_fmadd_ps headway::emulated::fmadd_ps
#define _mm512_add_epi32 headway::emulated::add_epi32
#define _mm512_and_si512 headway::emulated::and_si512
#define _mm512_madd_epi16 headway::emulated::madd_epi16
#define _mm512_castsi512_ps headway::emulated::castsi512_ps
#define _mm512_castps_si512 headway::emulated::castps_si512
#define _mm512_cvtps_epi32 headway::emulated::cvtps_epi32
#define _mm512_cvtepi32_ps headway::emulated::cvtepi32_ps
#define _mm512_slli_epi32 headway::emulated::slli_epi32
#define _mm512_cvtph_ps headway::emulated::cvtph_ps
#define _mm512_cvtps_ph(a, rounding) headway::emulated::cvtps_ph(a)
#define _mm512_cvtepi8_epi16 headway::emulated::cvtepi8_epi16
#define _mm512_cvtepi32_epi16 headway::emulated::narrow<std::int16_t, __m256i>
#define _mm512_cvtepi32_epi8 headway::emulated::narrow<std::int8_t, __m128i>
#define _mm512_mask_mov_ps headway::emulated::mask_mov_ps
#define _mm512_dpbusd_epi32 headway::emulated::dpbusd
#define _mm512_castps512_ps256 headway::emulated::low_ps
#define _mm512_castsi512_si256 headway::emulated::low_si256
#define _mm512_extractf32x8_ps(a, half) headway::emulated::high_ps(a)
#define _mm512_extracti32x8_epi32(a, half) headway::emulated::high_si256(a)
