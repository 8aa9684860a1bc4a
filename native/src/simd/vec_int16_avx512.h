// int8 products with AVX-512 BW: pairs of weights widened to int16.
#pragma once

#include "simd/vec_avx512.h"

namespace headway {
namespace {

struct MatInt8 {
    using Act = std::int16_t;
    using Acc = __m512i;
    static constexpr int kUnroll = 2;
    static constexpr int kBytes = 32;
    static constexpr int kWeightOffset = 0;
    static constexpr int kActLevels = 16383;
    static constexpr int kProbLevels = 32767;

    static HW_INLINE __m512i load(const std::uint8_t* p) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static HW_INLINE __m512i broadcast(const Act* a) { return _mm512_set1_epi32(load_as<std::int32_t>(a)); }
    static HW_INLINE void step(Acc& c, __m512i w, __m512i a) { c = _mm512_add_epi32(c, _mm512_madd_epi16(w, a)); }
};
using MatValues8 = MatInt8;

}  // namespace
}  // namespace headway
