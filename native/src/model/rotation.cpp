#include "model/rotation.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/kernel_set.h"

namespace headway {
namespace {

/// (a, b) <- (a + b, a - b) on runs of n floats.
void butterfly(float* a, float* b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        const float sum = a[i] + b[i];
        b[i] = a[i] - b[i];
        a[i] = sum;
    }
}

}  // namespace

Rotation::Rotation(int hidden_size) : num_blocks_(hidden_size), block_size_(1) {
    while (num_blocks_ % 2 == 0) {
        num_blocks_ /= 2;
        block_size_ *= 2;
    }
    const double norm = std::sqrt(2.0 / num_blocks_ / block_size_);
    for (int k = 0; k < num_blocks_; ++k) {
        for (int i = 0; i < num_blocks_; ++i) {
            const double wave = std::cos(std::numbers::pi * (i + 0.5) * k / num_blocks_) * norm;
            dct_.push_back(static_cast<float>(k == 0 ? wave / std::numbers::sqrt2 : wave));
        }
    }
}

void Rotation::apply(float* values, std::size_t inner, float* scratch) const {
    const std::size_t block = static_cast<std::size_t>(block_size_) * inner;
    const std::size_t total = block * static_cast<std::size_t>(num_blocks_);
    for (std::size_t step = inner; step < block; step *= 2) {
        for (std::size_t at = 0; at < total; at += 2 * step) butterfly(values + at, values + at + step, step);
    }
    std::memcpy(scratch, values, total * sizeof(float));
    for (int i = 0; i < num_blocks_; ++i) {
        float* out = values + static_cast<std::size_t>(i) * block;
        std::memset(out, 0, block * sizeof(float));
        for (int k = 0; k < num_blocks_; ++k) {
            const float weight = dct_[static_cast<std::size_t>(k * num_blocks_ + i)];
            const float* in = scratch + static_cast<std::size_t>(k) * block;
            for (std::size_t j = 0; j < block; ++j) out[j] += weight * in[j];
        }
    }
}

int online_hadamard_size(int ffn_size) {
    int size = kMaxHadamard;
    while (size > 1 && ffn_size % (size * kHadamardStride) != 0) size /= 2;
    return size;
}

void hadamard_row(float* row, int ffn_size, int size) {
    const float norm = 1.0f / std::sqrt(static_cast<float>(size));
    const int span = size * kHadamardStride;
    for (int begin = 0; begin + span <= ffn_size; begin += span) {
        for (int step = kHadamardStride; step < span; step *= 2) {
            for (int at = begin; at < begin + span; at += 2 * step) {
                butterfly(row + at, row + at + step, static_cast<std::size_t>(step));
            }
        }
    }
    for (int i = 0; i < ffn_size; ++i) row[i] *= norm;
}

}  // namespace headway
