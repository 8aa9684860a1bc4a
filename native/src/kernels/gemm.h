// Matrix product micro-kernels. Every output has one accumulator that walks k upwards, in every path.
#pragma once

#include "kernels/kernel_set.h"
#include "simd/common.h"

namespace headway {
namespace {

/// acc[r][v] += acts row r times column vector v, for one step of M::kUnroll values of k. Columns come as NG groups of
/// VG adjacent vectors, `at` bytes into each group.
template <class M, int R, int NG, int VG>
HW_INLINE void multiply_step(const typename M::Act* acts, std::ptrdiff_t stride,
                             const std::uint8_t* const (&groups)[NG], std::ptrdiff_t at,
                             typename M::Acc (&acc)[R][NG * VG]) {
    decltype(M::load(groups[0])) columns[NG * VG];
#pragma GCC unroll 16
    for (int v = 0; v < NG * VG; ++v) columns[v] = M::load(groups[v / VG] + at + v % VG * M::kBytes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        const auto act = M::broadcast(acts + r * stride);
#pragma GCC unroll 16
        for (int v = 0; v < NG * VG; ++v) M::step(acc[r][v], columns[v], act);
    }
}

/// The same over `steps` steps, step_bytes apart. Meanwhile what lies to_next[g] bytes behind group g is fetched, a line
/// or less a step: asked for all at once, the lines would wait for each other.
template <class M, int R, int NG, int VG>
HW_INLINE void multiply(const typename M::Act* acts, std::ptrdiff_t stride, const std::uint8_t* const (&groups)[NG],
                        const std::ptrdiff_t* to_next, std::ptrdiff_t step_bytes, int steps,
                        typename M::Acc (&acc)[R][NG * VG]) {
    std::ptrdiff_t at = 0;
    for (int s = 0; s < steps; ++s, at += step_bytes, acts += M::kUnroll) {
        multiply_step<M, R, NG, VG>(acts, stride, groups, at, acc);
#pragma GCC unroll 2
        for (int g = 0; g < NG; ++g) __builtin_prefetch(groups[g] + at + to_next[g]);
    }
}

constexpr std::ptrdiff_t kLine = 64;
constexpr std::ptrdiff_t kAhead = 2048;     // bytes of weights, where panels are read one after the other
constexpr std::ptrdiff_t kAheadEach = 192;  // bytes of each of several panels; nearer and farther were slower

/// Panels that so few rows pass by at a time: as many as there are registers for, for accumulators and weights.
constexpr int panels_beside(int num_rows) {
    constexpr int kMost = 9 / kPanelVectors;
    return kRowTile / num_rows < kMost ? kRowTile / num_rows : kMost;
}

/// The same over one panel of weights, fetching ahead into the next one: panels follow each other in memory, and the
/// hardware's own prefetcher stops at page borders. One step per turn of the loop: given two, g++ adds the two products
/// first and spills the accumulators.
template <class M, int R>
HW_INLINE void multiply_panel(const typename M::Act* acts, std::ptrdiff_t stride, const std::uint8_t* panel, int steps,
                              typename M::Acc (&acc)[R][kPanelVectors]) {
    constexpr std::ptrdiff_t step_bytes = kPanelVectors * M::kBytes;
    for (int s = 0; s < steps; ++s, acts += M::kUnroll, panel += step_bytes) {
        const std::uint8_t* const groups[1] = {panel};
        multiply_step<M, R, 1, kPanelVectors>(acts, stride, groups, 0, acc);
#pragma GCC unroll 16
        for (std::ptrdiff_t line = 0; line < step_bytes; line += kLine) __builtin_prefetch(panel + kAhead + line);
    }
}

/// The same over W panels side by side, whose weights are needed only once: each is a stream of its own, fetched past
/// the outer caches. At the end of its panel a stream goes on in the one W further.
template <class M, int R, int W>
HW_INLINE void multiply_panels(const typename M::Act* acts, std::ptrdiff_t stride, const std::uint8_t* panels,
                               std::ptrdiff_t panel_bytes, int steps, typename M::Acc (&acc)[R][W * kPanelVectors]) {
    constexpr std::ptrdiff_t step_bytes = kPanelVectors * M::kBytes;
    const std::uint8_t* groups[W];
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) groups[w] = panels + w * panel_bytes;
    const int ends[2] = {max_of(0, steps - static_cast<int>(kAheadEach / step_bytes)), steps};
    std::ptrdiff_t at = 0, ahead = kAheadEach;
    int s = 0;
    for (const int end : ends) {
        for (; s < end; ++s, at += step_bytes, acts += M::kUnroll) {
            multiply_step<M, R, W, kPanelVectors>(acts, stride, groups, at, acc);
#pragma GCC unroll 8
            for (int w = 0; w < W; ++w) {
#pragma GCC unroll 16
                for (std::ptrdiff_t line = 0; line < step_bytes; line += kLine) {
                    __builtin_prefetch(groups[w] + at + ahead + line, 0, 0);
                }
            }
        }
        ahead += (W - 1) * panel_bytes;
    }
}

HW_INLINE void start(Vec::I& acc, std::int32_t offset) { acc = Vec::set1_int(offset); }
HW_INLINE void start(Vec::F& acc, std::int32_t) { acc = Vec::set1(0.0f); }

HW_INLINE Vec::F finish(Vec::I acc, float act_scale, const float* scales, Vec::F base) {
    return Vec::fma(Vec::mul(Vec::to_float(acc), Vec::set1(act_scale)), Vec::load(scales), base);
}
HW_INLINE Vec::F finish(Vec::F acc, float, const float*, Vec::F base) { return Vec::add(acc, base); }

template <class Acc>
HW_INLINE Vec::F output(const GemmArgs& g, Acc acc, float act_scale, int column, const float* old) {
    Vec::F base = g.bias != nullptr ? Vec::load(g.bias + column) : Vec::set1(0.0f);
    if (g.epilogue == Epilogue::kAdd) base = Vec::add(base, Vec::load(old));
    return finish(acc, act_scale, g.scales + column, base);
}

/// Writes a tile whose last panel has fewer columns than it has room for: the last one of a matrix, so speed is no
/// matter.
template <class Acc>
__attribute__((noinline)) void write_edge(const GemmArgs& g, const Acc* acc, int num_vectors, int num_rows, int row,
                                          int column) {
    for (int r = 0; r < num_rows; ++r) {
        const float act_scale = g.act_scales != nullptr ? g.act_scales[row + r] : 1.0f;
        float* out = g.out + (row + r - g.row_begin) * g.out_stride;
        for (int v = 0; v < num_vectors; ++v) {
            const int at = column + v * Vec::kLanes, count = min_of(g.num_outputs - at, Vec::kLanes);
            alignas(64) float some[Vec::kLanes] = {};
            for (int i = 0; i < count; ++i) some[i] = out[at + i];
            Vec::store(some, output(g, acc[r * num_vectors + v], act_scale, at, some));
            for (int i = 0; i < count; ++i) out[at + i] = some[i];
        }
    }
}

template <class M, int R, int W>
void gemm_tile(const GemmArgs& g, int row, int panel) {
    constexpr int kVectors = W * kPanelVectors;
    typename M::Acc acc[R][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) start(acc[r][v], g.act_offsets != nullptr ? g.act_offsets[row + r] : 0);
    }
    const auto* acts = static_cast<const typename M::Act*>(g.acts) + row * g.act_stride;
    const std::uint8_t* weights = g.weights + static_cast<std::size_t>(panel) * g.panel_bytes;
    if constexpr (W == 1) {
        multiply_panel<M, R>(acts, g.act_stride, weights, g.num_steps, acc);
    } else {
        multiply_panels<M, R, W>(acts, g.act_stride, weights, static_cast<std::ptrdiff_t>(g.panel_bytes), g.num_steps,
                                 acc);
    }
    const int column = panel * kPanelVectors * Vec::kLanes;
    if (column + kVectors * Vec::kLanes > g.num_outputs) {
        typename M::Acc saved[R * kVectors];
#pragma GCC unroll 32  // an index the compiler cannot see would keep acc in memory, in the loop above too
        for (int i = 0; i < R * kVectors; ++i) saved[i] = acc[i / kVectors][i % kVectors];
        return write_edge(g, saved, kVectors, R, row, column);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        const float act_scale = g.act_scales != nullptr ? g.act_scales[row + r] : 1.0f;
        float* out = g.out + (row + r - g.row_begin) * g.out_stride + column;
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v, out += Vec::kLanes) {
            Vec::store(out, output(g, acc[r][v], act_scale, column + v * Vec::kLanes, out));
        }
    }
}

template <class M, int R>
HW_INLINE void gemm_rows(const GemmArgs& g, int row, int num_rows, int panel) {
    if constexpr (R == 1) {
        gemm_tile<M, 1, 1>(g, row, panel);
    } else if (num_rows == R) {
        gemm_tile<M, R, 1>(g, row, panel);
    } else {
        gemm_rows<M, R - 1>(g, row, num_rows, panel);
    }
}

/// R rows by `num_panels` panels at a time, of which there are W at most.
template <class M, int R, int W>
HW_INLINE void gemm_columns(const GemmArgs& g, int panel, int num_panels) {
    if constexpr (W == 1) {
        gemm_tile<M, R, 1>(g, g.row_begin, panel);
    } else if (num_panels == W) {
        gemm_tile<M, R, W>(g, g.row_begin, panel);
    } else {
        gemm_columns<M, R, W - 1>(g, panel, num_panels);
    }
}

/// The whole product where the rows are so few, R or more, that their weights are read from memory as fast as it gives
/// them: several panels at a time, in groups of nearly equal width. False, and nothing done, for more rows.
template <class M, int R>
HW_INLINE bool gemm_few(const GemmArgs& g, int num_rows) {
    constexpr int width = panels_beside(R);
    if constexpr (width <= 1) {
        return false;
    } else {
        if (num_rows != R) return gemm_few<M, R + 1>(g, num_rows);
        const int num_panels = g.panel_end - g.panel_begin;
        const int num_groups = (num_panels + width - 1) / width;
        for (int i = 0; i < num_groups; ++i) {
            const int begin = num_panels * i / num_groups, end = num_panels * (i + 1) / num_groups;
            gemm_columns<M, R, width>(g, g.panel_begin + begin, end - begin);
        }
        return true;
    }
}

/// The inner loop's products without its loads: as many accumulators, one weight vector, one activation.
template <class M>
double products(int num_steps) {
    alignas(64) const std::uint8_t weights[256] = {};
    alignas(64) const typename M::Act acts[16] = {};
    typename M::Acc acc[kRowTile * kPanelVectors];
#pragma GCC unroll 32
    for (auto& a : acc) start(a, 0);
    auto column = M::load(weights);
    auto act = M::broadcast(acts);
    hide(act);  // else products with zeros would be known beforehand
    for (int s = 0; s < num_steps; ++s) {
#pragma GCC unroll 32
        for (auto& a : acc) {
            hide(column);  // else one product would serve all accumulators
            M::step(a, column, act);
        }
    }
#pragma GCC unroll 32
    for (auto& a : acc) hide(a);
    return static_cast<double>(num_steps) * kRowTile * kPanelVectors * Vec::kLanes * M::kUnroll;
}

/// Panels outside, so that one stays in the first-level cache while all rows pass by it.
template <class M>
void gemm(const GemmArgs& g) {
    const int num_rows = g.row_end - g.row_begin;
    if (gemm_few<M, 1>(g, num_rows)) return;
    const int num_tiles = (num_rows + kRowTile - 1) / kRowTile;
    for (int panel = g.panel_begin; panel < g.panel_end; ++panel) {
        for (int t = 0; t < num_tiles; ++t) {
            // Tiles of nearly equal height: 8 rows as 4 + 4 rather than 6 + 2.
            const int begin = num_rows * t / num_tiles, end = num_rows * (t + 1) / num_tiles;
            gemm_rows<M, kRowTile>(g, g.row_begin + begin, end - begin, panel);
        }
    }
}

}  // namespace
}  // namespace headway
