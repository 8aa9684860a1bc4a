// Scalar functions on vectors, written out so that every set computes them in one known way.
#pragma once

#include "simd/common.h"

namespace headway {
namespace {

/// 2^x to 2e-7 relative, exactly 1 at 0, for any x; below -126 it gives 2^-126 and above 126 it gives 2^126.
/// Attention relies on exp2(0) == 1: rescaling a row whose maximum did not move must not change a bit.
HW_INLINE Vec::F exp2_of(Vec::F x) {
    x = Vec::min(Vec::max(x, Vec::set1(-126.0f)), Vec::set1(126.0f));
    const Vec::I whole = Vec::to_int(x);
    const Vec::F rest = Vec::sub(x, Vec::to_float(whole));  // exact, in [-0.5, 0.5]
    // Least relative error on that interval with the constant term held at 1.
    Vec::F p = Vec::set1(0x1.5bba08p-10f);
    p = Vec::fma(p, rest, Vec::set1(0x1.3cea88p-7f));
    p = Vec::fma(p, rest, Vec::set1(0x1.c6b752p-5f));
    p = Vec::fma(p, rest, Vec::set1(0x1.ebf9bcp-3f));
    p = Vec::fma(p, rest, Vec::set1(0x1.62e42ap-1f));
    p = Vec::fma(p, rest, Vec::set1(1.0f));
    return Vec::mul(p, Vec::pow2(whole));
}

/// x / (1 + e^-x), finite for every finite x.
HW_INLINE Vec::F silu_of(Vec::F x) {
    const Vec::F e = exp2_of(Vec::mul(x, Vec::set1(-1.44269504f)));
    return Vec::div(x, Vec::add(e, Vec::set1(1.0f)));
}

}  // namespace
}  // namespace headway
