// Vectors of four in the compiler's own terms: the set that runs on any processor, with SSE2, NEON or neither.
// No fused multiply-add, which is slow in software.
#pragma once

#include "simd/common.h"

namespace headway {
namespace {

HW_INLINE float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) {
        const std::uint32_t bits = sign | 0x7F800000u | (magnitude & 0x3FFu) << 13;
        return load_as<float>(&bits);
    }
    // Shifting the bits and multiplying by 2^112 rebuilds normal and subnormal numbers alike.
    const std::uint32_t shifted = magnitude << 13;
    const float value = load_as<float>(&shifted) * 0x1p112f;
    return sign != 0 ? -value : value;
}

HW_INLINE std::uint16_t float_to_half(float value) {
    const std::uint32_t bits = load_as<std::uint32_t>(&value);
    const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return sign | 0x7E00u;
    if (magnitude >= 0x477FF000u) return sign | 0x7C00u;
    if (magnitude < 0x38800000u) {
        // Adding 0.5 lines the mantissa up with float16's subnormals and rounds to even.
        const float aligned = load_as<float>(&magnitude) + 0.5f;
        return sign | static_cast<std::uint16_t>(load_as<std::uint32_t>(&aligned) - 0x3F000000u);
    }
    const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

/// Makes the compiler forget what a register holds; wider types than one register are left to memory.
template <class T>
HW_INLINE void hide(T& a) {
    asm volatile("" : "+m"(a));
}

struct Vec {
    static constexpr int kLanes = 4;
    typedef float F __attribute__((vector_size(16)));
    typedef std::int32_t I __attribute__((vector_size(16)));

    static HW_INLINE F load(const float* p) { return load_as<F>(p); }
    static HW_INLINE void store(float* p, F a) { store_as(p, a); }
    static HW_INLINE F load_half(const std::uint16_t* p) {
        return F{half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3])};
    }
    static HW_INLINE void store_half(std::uint16_t* p, F a) {
        for (int i = 0; i < kLanes; ++i) p[i] = float_to_half(a[i]);
    }
    static HW_INLINE F set1(float x) { return F{x, x, x, x}; }
    static HW_INLINE F add(F a, F b) { return a + b; }
    static HW_INLINE F sub(F a, F b) { return a - b; }
    static HW_INLINE F mul(F a, F b) { return a * b; }
    static HW_INLINE F div(F a, F b) { return a / b; }
    static HW_INLINE F fma(F a, F b, F c) { return a * b + c; }
    static HW_INLINE F max(F a, F b) { return a > b ? a : b; }
    static HW_INLINE F min(F a, F b) { return a < b ? a : b; }
    static HW_INLINE F abs(F a) { return load_as<F>(&static_cast<const I&>(load_as<I>(&a) & 0x7FFFFFFF)); }
    /// Lanes below n come from a, the others from b.
    static HW_INLINE F select_first(int n, F a, F b) { return set1_int(n) > I{0, 1, 2, 3} ? a : b; }
    static HW_INLINE float reduce_add(F a) { return (a[0] + a[2]) + (a[1] + a[3]); }
    static HW_INLINE float reduce_max(F a) {
        float top = a[0];
        for (int i = 1; i < kLanes; ++i) top = a[i] > top ? a[i] : top;
        return top;
    }

    static HW_INLINE I set1_int(std::int32_t x) { return I{x, x, x, x}; }
    static HW_INLINE I add_int(I a, I b) { return a + b; }
    static HW_INLINE std::int32_t reduce_add_int(I a) { return a[0] + a[1] + a[2] + a[3]; }
    /// Nearest integer, ties to even, for magnitudes below 2^22; others give some integer, never a trap.
    static HW_INLINE I to_int(F a) {
        const F shift = set1(0x1.8p23f);  // the sum has no bits left for a fraction
        return whole_to_int((a + shift) - shift);
    }
    static HW_INLINE I whole_to_int(F a) { return __builtin_convertvector(a, I); }
    static HW_INLINE F to_float(I a) { return __builtin_convertvector(a, F); }
    /// 2^n for -126 <= n <= 127.
    static HW_INLINE F pow2(I n) { return load_as<F>(&static_cast<const I&>((n + 127) << 23)); }
    static HW_INLINE void store_acts(std::int16_t* p, I a) {
        for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int16_t>(a[i]);
    }
};

/// Pairs of int8 weights against pairs of int16 activations, summed in int32. A pair's sum stays below 2^24, so float
/// products hold it exactly, and every processor multiplies floats fast.
struct MatInt8 {
    using Act = std::int16_t;
    using Acc = Vec::I;
    struct Weights {
        Vec::F even, odd;
    };
    struct Pair {
        Vec::F first, second;
    };
    static constexpr int kUnroll = 2;
    static constexpr int kBytes = 8;
    static constexpr int kWeightOffset = 0;
    static constexpr int kActLevels = 16383;
    static constexpr int kProbLevels = 32767;

    static HW_INLINE Weights load(const std::uint8_t* p) {
        const std::int8_t* w = reinterpret_cast<const std::int8_t*>(p);
        return {Vec::to_float(Vec::I{w[0], w[2], w[4], w[6]}), Vec::to_float(Vec::I{w[1], w[3], w[5], w[7]})};
    }
    static HW_INLINE Pair broadcast(const Act* a) { return {Vec::set1(a[0]), Vec::set1(a[1])}; }
    static HW_INLINE void step(Acc& c, const Weights& w, const Pair& a) {
        c += Vec::whole_to_int(w.even * a.first + w.odd * a.second);
    }
};
using MatValues8 = MatInt8;

struct MatFloat {
    using Act = float;
    using Acc = Vec::F;
    static constexpr int kUnroll = 1;
    static constexpr int kBytes = 16;
    static HW_INLINE Vec::F load(const std::uint8_t* p) { return load_as<Vec::F>(p); }
    static HW_INLINE Vec::F broadcast(const float* a) { return Vec::set1(*a); }
    static HW_INLINE void step(Acc& c, Vec::F w, Vec::F a) { c = Vec::fma(w, a, c); }
};

struct MatHalf : MatFloat {
    static constexpr int kBytes = 8;
    static HW_INLINE Vec::F load(const std::uint8_t* p) {
        return Vec::load_half(reinterpret_cast<const std::uint16_t*>(p));
    }
};

constexpr int kPanelVectors = 4;
constexpr int kRowTile = 4;

}  // namespace
}  // namespace headway
