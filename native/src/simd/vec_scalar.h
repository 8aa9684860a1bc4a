// Vectors of eight in plain C++: the set that runs anywhere. No fused multiply-add, which is slow in software.
#pragma once

#include "simd/common.h"

namespace headway {
namespace {

HW_INLINE float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) return load_as<float>(&static_cast<const std::uint32_t&>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13));
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

struct Vec {
    static constexpr int kLanes = 8;
    struct F {
        float v[8];
    };
    struct I {
        std::int32_t v[8];
    };

#define HW_EACH for (int i = 0; i < kLanes; ++i)
    static HW_INLINE F load(const float* p) {
        F r;
        HW_EACH r.v[i] = p[i];
        return r;
    }
    static HW_INLINE void store(float* p, F a) { HW_EACH p[i] = a.v[i]; }
    static HW_INLINE F load_half(const std::uint16_t* p) {
        F r;
        HW_EACH r.v[i] = half_to_float(p[i]);
        return r;
    }
    static HW_INLINE void store_half(std::uint16_t* p, F a) { HW_EACH p[i] = float_to_half(a.v[i]); }
    static HW_INLINE F set1(float x) {
        F r;
        HW_EACH r.v[i] = x;
        return r;
    }
    static HW_INLINE F add(F a, F b) {
        HW_EACH a.v[i] += b.v[i];
        return a;
    }
    static HW_INLINE F sub(F a, F b) {
        HW_EACH a.v[i] -= b.v[i];
        return a;
    }
    static HW_INLINE F mul(F a, F b) {
        HW_EACH a.v[i] *= b.v[i];
        return a;
    }
    static HW_INLINE F div(F a, F b) {
        HW_EACH a.v[i] /= b.v[i];
        return a;
    }
    static HW_INLINE F fma(F a, F b, F c) {
        HW_EACH c.v[i] = a.v[i] * b.v[i] + c.v[i];
        return c;
    }
    static HW_INLINE F max(F a, F b) {
        HW_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
        return a;
    }
    static HW_INLINE F min(F a, F b) {
        HW_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
        return a;
    }
    static HW_INLINE F abs(F a) {
        HW_EACH a.v[i] = __builtin_fabsf(a.v[i]);
        return a;
    }
    /// Lanes below n come from a, the others from b.
    static HW_INLINE F select_first(int n, F a, F b) {
        HW_EACH a.v[i] = i < n ? a.v[i] : b.v[i];
        return a;
    }
    static HW_INLINE float reduce_add(F a) {
        const float low = (a.v[0] + a.v[4]) + (a.v[2] + a.v[6]);
        const float high = (a.v[1] + a.v[5]) + (a.v[3] + a.v[7]);
        return low + high;
    }
    static HW_INLINE float reduce_max(F a) {
        float r = a.v[0];
        HW_EACH r = a.v[i] > r ? a.v[i] : r;
        return r;
    }

    static HW_INLINE I set1_int(std::int32_t x) {
        I r;
        HW_EACH r.v[i] = x;
        return r;
    }
    static HW_INLINE I add_int(I a, I b) {
        HW_EACH a.v[i] += b.v[i];
        return a;
    }
    static HW_INLINE std::int32_t reduce_add_int(I a) {
        std::int32_t r = 0;
        HW_EACH r += a.v[i];
        return r;
    }
    /// Nearest integer, ties to even. Values outside int32 give some integer, never a trap.
    static HW_INLINE I to_int(F a) {
        I r;
        HW_EACH r.v[i] = static_cast<std::int32_t>(__builtin_lrintf(a.v[i]));
        return r;
    }
    static HW_INLINE F to_float(I a) {
        F r;
        HW_EACH r.v[i] = static_cast<float>(a.v[i]);
        return r;
    }
    /// 2^n for -126 <= n <= 127.
    static HW_INLINE F pow2(I n) {
        F r;
        HW_EACH {
            const std::uint32_t bits = (static_cast<std::uint32_t>(n.v[i]) + 127u) << 23;
            r.v[i] = load_as<float>(&bits);
        }
        return r;
    }
    static HW_INLINE void store_acts(std::int16_t* p, I a) { HW_EACH p[i] = static_cast<std::int16_t>(a.v[i]); }
#undef HW_EACH
};

/// Pairs of int8 weights against pairs of int16 activations, summed in int32.
struct MatInt8 {
    using Act = std::int16_t;
    using Acc = Vec::I;
    struct Weights {
        std::int16_t v[16];
    };
    struct Pair {
        std::int16_t low, high;
    };
    static constexpr int kUnroll = 2;
    static constexpr int kBytes = 16;
    static constexpr int kWeightOffset = 0;
    static constexpr int kActLevels = 16383;
    static constexpr int kProbLevels = 32767;

    static HW_INLINE Weights load(const std::uint8_t* p) {
        Weights w;
        for (int i = 0; i < 16; ++i) w.v[i] = static_cast<std::int8_t>(p[i]);
        return w;
    }
    static HW_INLINE Pair broadcast(const Act* a) { return {a[0], a[1]}; }
    static HW_INLINE void step(Acc& c, const Weights& w, Pair a) {
        for (int i = 0; i < 8; ++i) c.v[i] += w.v[2 * i] * a.low + w.v[2 * i + 1] * a.high;
    }
};
using MatValues8 = MatInt8;

struct MatFloat {
    using Act = float;
    using Acc = Vec::F;
    static constexpr int kUnroll = 1;
    static constexpr int kBytes = 32;
    static HW_INLINE Vec::F load(const std::uint8_t* p) { return load_as<Vec::F>(p); }
    static HW_INLINE Vec::F broadcast(const float* a) { return Vec::set1(*a); }
    static HW_INLINE void step(Acc& c, Vec::F w, Vec::F a) { c = Vec::fma(w, a, c); }
};

struct MatHalf : MatFloat {
    static constexpr int kBytes = 16;
    static HW_INLINE Vec::F load(const std::uint8_t* p) { return Vec::load_half(reinterpret_cast<const std::uint16_t*>(p)); }
};

constexpr int kPanelVectors = 2;
constexpr int kRowTile = 4;

}  // namespace
}  // namespace headway
