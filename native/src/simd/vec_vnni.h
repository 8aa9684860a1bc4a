// int8 products with AVX-512 VNNI: unsigned weights against signed activations, four at a time.
#pragma once

#include "simd/vec_avx512.h"

namespace headway {
namespace {

/// c += sum of four products u8 * s8 per lane. In assembly, because g++ 12 copies the accumulator around the intrinsic
/// and runs a loop of them four times slower.
HW_INLINE void dot4(__m512i& c, __m512i u8, __m512i s8) {
#ifdef HEADWAY_EMULATE_AVX512
    c = _mm512_dpbusd_epi32(c, u8, s8);
#else
    asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(u8), "v"(s8));
#endif
}

struct MatInt8 {
    using Act = std::int8_t;
    using Acc = __m512i;
    static constexpr int kUnroll = 4;
    static constexpr int kBytes = 64;
    static constexpr int kWeightOffset = 128;
    static constexpr int kActLevels = 127;
    static constexpr int kProbLevels = 255;

    static HW_INLINE __m512i load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
    static HW_INLINE __m512i broadcast(const Act* a) { return _mm512_set1_epi32(load_as<std::int32_t>(a)); }
    static HW_INLINE void step(Acc& c, __m512i w, __m512i a) { dot4(c, w, a); }
};

/// Cached values are signed and their weights, the probabilities, unsigned: the other way round, without an offset.
struct MatValues8 : MatInt8 {
    static HW_INLINE void step(Acc& c, __m512i w, __m512i a) { dot4(c, a, w); }
};

}  // namespace
}  // namespace headway
