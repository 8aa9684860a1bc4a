// Operations on one row: norms, quantisation, the gated activation, arg max.
#pragma once

#include "kernels/kernel_set.h"
#include "kernels/math.h"
#include "simd/common.h"

namespace headway {
namespace {

/// Smallest magnitude a row is scaled by: an all-zero row gets a finite scale.
constexpr float kTinyMax = 1e-20f;

HW_INLINE float max_abs(const float* x, int n) {
    Vec::F m = Vec::set1(kTinyMax);
    for (int i = 0; i < n; i += Vec::kLanes) m = Vec::max(Vec::abs(Vec::load(x + i)), m);
    return Vec::reduce_max(m);
}

/// Quantises n values (a multiple of kPad) against their own maximum; `factor` multiplies the scale alone.
template <class Act>
HW_INLINE void quantize_by_max(const float* x, int n, float factor, const QuantizedRow& out) {
    const float top = max_abs(x, n);
    const float levels = static_cast<float>(out.levels);
    const Vec::F inverse = Vec::set1(levels / top);
    Vec::I sum = Vec::set1_int(0);
    Act* values = static_cast<Act*>(out.values);
    for (int i = 0; i < n; i += Vec::kLanes) {
        const Vec::I q = Vec::to_int(Vec::mul(Vec::load(x + i), inverse));
        sum = Vec::add_int(sum, q);
        Vec::store_acts(values + i, q);
    }
    *out.scale = top / levels * factor;
    if constexpr (MatInt8::kWeightOffset != 0) *out.offset = -MatInt8::kWeightOffset * Vec::reduce_add_int(sum);
}

HW_INLINE int padded(int n) { return (n + kPad - 1) / kPad * kPad; }

HW_INLINE float inverse_rms(const float* x, int n, float eps) {
    Vec::F sum = Vec::set1(0.0f);
    for (int i = 0; i < padded(n); i += Vec::kLanes) {
        const Vec::F v = Vec::load(x + i);
        sum = Vec::fma(v, v, sum);
    }
    return 1.0f / __builtin_sqrtf(Vec::reduce_add(sum) / static_cast<float>(n) + eps);
}

void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
    const Vec::F factor = Vec::set1(inverse_rms(x, n, eps));
    for (int i = 0; i < padded(n); i += Vec::kLanes) {
        Vec::store(out + i, Vec::mul(Vec::mul(Vec::load(x + i), factor), Vec::load(weight + i)));
    }
}

/// The norm's weight was folded into the matrix behind it, and dividing by the rms only moves the row's scale.
void rms_norm_quantize(const float* x, int n, float eps, const QuantizedRow& out) {
    quantize_by_max<MatInt8::Act>(x, padded(n), inverse_rms(x, n, eps), out);
}

void quantize(const float* x, int n, const QuantizedRow& out) {
    quantize_by_max<MatInt8::Act>(x, padded(n), 1.0f, out);
}

void silu_mul(const float* gate_up, int n, float* out) {
    const float* up = gate_up + n;
    for (int i = 0; i < padded(n); i += Vec::kLanes) {
        const Vec::F y = Vec::mul(silu_of(Vec::load(gate_up + i)), Vec::load(up + i));
        Vec::store(out + i, Vec::select_first(n - i, y, Vec::set1(0.0f)));
    }
}

/// Butterflies of span `step` among `size` runs of kHadamardStride values.
HW_INLINE void butterflies(float* x, int size, int step) {
    for (int low = 0; low < size; low += 2 * step) {
        for (int i = low * kHadamardStride; i < (low + step) * kHadamardStride; i += Vec::kLanes) {
            const Vec::F a = Vec::load(x + i), b = Vec::load(x + i + step * kHadamardStride);
            Vec::store(x + i, Vec::add(a, b));
            Vec::store(x + i + step * kHadamardStride, Vec::sub(a, b));
        }
    }
}

/// Walsh-Hadamard transform without its 1 / sqrt(size), over values kHadamardStride apart.
HW_INLINE void hadamard_rows(float* x, int n, int size) {
    for (int begin = 0; begin + size * kHadamardStride <= n; begin += size * kHadamardStride) {
        for (int step = 1; step < size; step *= 2) butterflies(x + begin, size, step);
    }
}

void silu_mul_quantize(const float* gate_up, int n, int hadamard, const QuantizedRow& out, float* scratch) {
    silu_mul(gate_up, n, scratch);
    if (hadamard > 1) hadamard_rows(scratch, n, hadamard);
    quantize_by_max<MatInt8::Act>(scratch, padded(n), 1.0f / __builtin_sqrtf(static_cast<float>(hadamard)), out);
}

/// The first index of the largest value; NaN never wins, and an all-NaN row gives 0.
int argmax(const float* x, int n) {
    constexpr float kLowest = -__builtin_inff();
    Vec::F best = Vec::set1(kLowest);
    int i = 0;
    for (; i + Vec::kLanes <= n; i += Vec::kLanes) best = Vec::max(Vec::load(x + i), best);
    float top = Vec::reduce_max(best);
    for (; i < n; ++i) top = x[i] > top ? x[i] : top;
    for (i = 0; i < n; ++i) {
        if (x[i] == top) return i;
    }
    return 0;
}

}  // namespace
}  // namespace headway
