// Attention over the paged cache: online softmax in tiles of 32 tokens at fixed positions.
//
// A row's result depends on its query and the tokens it may see, on nothing else: the tiles start at multiples of 32
// whatever the block size, a row skips the tiles it sees nothing of, and every sum runs in one order. The online
// softmax is that of Milakov and Gimelshein (2018); folding the value scale into the score in the log domain keeps the
// int8 product of probabilities and values free of per-token scales.
#pragma once

#include "kernels/append.h"
#include "kernels/cache_slots.h"
#include "kernels/gemm.h"
#include "kernels/math.h"

namespace headway {
namespace {

constexpr int kGroupVectors = kGroup / Vec::kLanes;
constexpr float kNothingSeen = -1e30f;

/// One query row's running maximum (log2) and the lanes of its running sum.
struct RowState {
    alignas(64) float sum[Vec::kLanes];
    float top;
    float old_factor;  // what this tile multiplies the row's output so far by
    float new_factor;  // what the tile's own product is multiplied by
};

template <class Cache>
struct Scratch {
    using Prob = typename Cache::Values::Act;
    RowState* states;
    float* scores;  // num_rows x kTile
    Prob* probs;    // num_rows x kTile
    std::uint8_t* gathered;
};

HW_INLINE std::size_t scratch_bytes(int num_rows, int padded_dim) {
    const std::size_t per_row = sizeof(RowState) + 2 * sizeof(float) * kTile;
    return static_cast<std::size_t>(num_rows) * per_row +
           4 * sizeof(float) * kGroup * static_cast<std::size_t>(padded_dim);
}

std::size_t attend_scratch(int num_rows, int padded_dim) { return scratch_bytes(num_rows, padded_dim); }

HW_INLINE Vec::F as_float(Vec::I a) { return Vec::to_float(a); }
HW_INLINE Vec::F as_float(Vec::F a) { return a; }

/// scores[r][t] = query r . key t, for R rows and both groups of a tile.
template <class Cache, int R>
void score_rows(const AttendArgs& a, int row, const Tile& tile, float* scores) {
    using M = typename Cache::Keys;
    const int dim = a.kv->padded_dim;
    typename M::Acc acc[R][2 * kGroupVectors];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < 2 * kGroupVectors; ++v) {
            start(acc[r][v], a.query_offsets != nullptr ? a.query_offsets[row + r] : 0);
        }
    }
    multiply<M, R, 2, kGroupVectors>(static_cast<const typename M::Act*>(a.queries) + row * dim, dim, tile.keys,
                                     tile.to_next, kGroupVectors * M::kBytes, dim / M::kUnroll, acc);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        const Vec::F scale = Vec::set1(a.query_scales != nullptr ? a.query_scales[row + r] : 1.0f);
#pragma GCC unroll 16
        for (int v = 0; v < 2 * kGroupVectors; ++v) {
            Vec::store(scores + (row + r) * kTile + v * Vec::kLanes, Vec::mul(as_float(acc[r][v]), scale));
        }
    }
}

/// Adds the tile's scales to the scores of one row and hides the tokens it may not see; returns the maximum.
template <class Cache>
HW_INLINE float finish_scores(const Tile& tile, int visible, float* scores) {
    Vec::F top = Vec::set1(kNothingSeen);
    for (int t = 0; t < kTile; t += Vec::kLanes) {
        Vec::F s = Vec::load(scores + t);
        if constexpr (sizeof(typename Cache::Element) == 1) {
            s = Vec::fma(s, Vec::load(tile.key_scale + t), Vec::load(tile.log2_value_scale + t));
        }
        s = Vec::select_first(visible - t, s, Vec::set1(kNothingSeen));
        Vec::store(scores + t, s);
        top = Vec::max(s, top);
    }
    return Vec::reduce_max(top);
}

/// 2^a and 2^b for the price of one.
HW_INLINE void exp2_two(float& a, float& b) {
    alignas(64) float lanes[Vec::kLanes] = {a, b};
    Vec::store(lanes, exp2_of(Vec::load(lanes)));
    a = lanes[0];
    b = lanes[1];
}

HW_INLINE void store_probs(float* out, Vec::F p, float) { Vec::store(out, p); }
template <class Act>
HW_INLINE void store_probs(Act* out, Vec::F p, float levels) {
    Vec::store_acts(out, Vec::to_int(Vec::mul(p, Vec::set1(levels))));
}

/// Turns a row's scores into weights and moves its running maximum and sum along.
/// Floats: weights relative to the running maximum. int8: relative to the tile's own maximum, so that they use all
/// levels.
template <class Cache>
HW_INLINE void soften_row(const Tile& tile, int visible, float levels, const Scratch<Cache>& scratch, int row) {
    constexpr bool kQuantized = sizeof(typename Cache::Element) == 1;
    float* scores = scratch.scores + row * kTile;
    RowState& state = scratch.states[row];
    const float tile_top = finish_scores<Cache>(tile, visible, scores);
    const float top = tile_top > state.top ? tile_top : state.top;
    const Vec::F zero = Vec::set1(0.0f), relative_to = Vec::set1(kQuantized ? tile_top : top);
    Vec::F sum = zero;
    for (int t = 0; t < kTile; t += Vec::kLanes) {
        const Vec::F p = Vec::select_first(visible - t, exp2_of(Vec::sub(Vec::load(scores + t), relative_to)), zero);
        store_probs(scratch.probs + row * kTile + t, p, levels);
        if constexpr (kQuantized) {
            const Vec::F unscale = Vec::select_first(visible - t, Vec::load(tile.inverse_value_scale + t), zero);
            sum = Vec::fma(p, unscale, sum);
        } else {
            sum = Vec::add(sum, p);
        }
    }
    float old_factor = state.top - top, tile_factor = kQuantized ? tile_top - top : 0.0f;
    exp2_two(old_factor, tile_factor);
    state.old_factor = old_factor;
    state.new_factor = kQuantized ? tile_factor / levels : 1.0f;
    state.top = top;
    const Vec::F old_sum = Vec::mul(Vec::load(state.sum), Vec::set1(old_factor));
    Vec::store(state.sum, Vec::fma(sum, Vec::set1(tile_factor), old_sum));
}

/// out[r] = out[r] * old_factor + new_factor * (weights r . values), for R rows, two vectors of dimensions at a time.
template <class Cache, int R>
void weigh_rows(const AttendArgs& a, int row, int num_tokens, const Tile& tile, const Scratch<Cache>& scratch) {
    using M = typename Cache::Values;
    constexpr int V = kGroupVectors;
    const int dim = a.kv->padded_dim;
    const std::ptrdiff_t step_bytes = static_cast<std::ptrdiff_t>(dim) / Vec::kLanes * M::kBytes;
    const int num_steps = (num_tokens + M::kUnroll - 1) / M::kUnroll;
    const int first_steps = min_of(num_steps, kGroup / M::kUnroll);
    for (int d = 0; d < dim; d += V * Vec::kLanes) {
        typename M::Acc acc[R][V];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) start(acc[r][v], 0);
        }
        const typename M::Act* probs = scratch.probs + row * kTile;
        const std::uint8_t* const first[1] = {tile.values[0] + d / Vec::kLanes * M::kBytes};
        const std::uint8_t* const second[1] = {tile.values[1] + d / Vec::kLanes * M::kBytes};
        multiply<M, R, 1, V>(probs, kTile, first, tile.to_next, step_bytes, first_steps, acc);
        multiply<M, R, 1, V>(probs + kGroup, kTile, second, tile.to_next + 1, step_bytes, num_steps - first_steps, acc);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const RowState& state = scratch.states[row + r];
            float* out = a.out + (row + r) * dim + d;
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) {
                const Vec::F old = Vec::mul(Vec::load(out + v * Vec::kLanes), Vec::set1(state.old_factor));
                Vec::store(out + v * Vec::kLanes, Vec::fma(as_float(acc[r][v]), Vec::set1(state.new_factor), old));
            }
        }
    }
}

/// Calls score_rows or weigh_rows on rows [begin, end) in pieces of at most R.
template <class Cache, int R>
HW_INLINE void score_piece(const AttendArgs& a, int row, int num_rows, const Tile& tile, float* scores) {
    if constexpr (R == 1) {
        score_rows<Cache, 1>(a, row, tile, scores);
    } else if (num_rows == R) {
        score_rows<Cache, R>(a, row, tile, scores);
    } else {
        score_piece<Cache, R - 1>(a, row, num_rows, tile, scores);
    }
}

template <class Cache, int R>
HW_INLINE void weigh_piece(const AttendArgs& a, int row, int num_rows, int num_tokens, const Tile& tile,
                           const Scratch<Cache>& scratch) {
    if constexpr (R == 1) {
        weigh_rows<Cache, 1>(a, row, num_tokens, tile, scratch);
    } else if (num_rows == R) {
        weigh_rows<Cache, R>(a, row, num_tokens, tile, scratch);
    } else {
        weigh_piece<Cache, R - 1>(a, row, num_rows, num_tokens, tile, scratch);
    }
}

constexpr int kScoreRows = kRowTile > 6 ? 6 : kRowTile / 2 + kRowTile % 2;  // accumulators: rows x 2 groups
constexpr int kWeighRows = kRowTile;

/// One tile for the rows that see any of it. Lengths do not fall from row to row, so those are the last ones.
template <class Cache>
HW_INLINE void attend_tile(const AttendArgs& a, int first, const Scratch<Cache>& scratch, Tile& tile) {
    const int num_tokens = min_of(kTile, a.lengths[a.num_rows - 1] - first);
    fetch_tile<Cache>(a, first, num_tokens, scratch.gathered, tile);
    point_at_next<Cache>(a, first + kTile, tile);
    int begin = 0;
    while (a.lengths[begin] <= first) ++begin;
    for (int r = begin; r < a.num_rows; r += kScoreRows) {
        score_piece<Cache, kScoreRows>(a, r, min_of(kScoreRows, a.num_rows - r), tile, scratch.scores);
    }
    for (int r = begin; r < a.num_rows; ++r) {
        soften_row<Cache>(tile, a.lengths[r] - first, static_cast<float>(a.prob_levels), scratch, r);
    }
    for (int r = begin; r < a.num_rows; r += kWeighRows) {
        weigh_piece<Cache, kWeighRows>(a, r, min_of(kWeighRows, a.num_rows - r), num_tokens, tile, scratch);
    }
}

template <class Cache>
void attend_as(const AttendArgs& a) {
    const int dim = a.kv->padded_dim;
    std::uint8_t* at = a.scratch;
    Scratch<Cache> scratch;
    scratch.states = reinterpret_cast<RowState*>(at);
    at += sizeof(RowState) * static_cast<std::size_t>(a.num_rows);
    scratch.scores = reinterpret_cast<float*>(at);
    at += sizeof(float) * kTile * static_cast<std::size_t>(a.num_rows);
    scratch.probs = reinterpret_cast<typename Scratch<Cache>::Prob*>(at);
    scratch.gathered = at + sizeof(float) * kTile * static_cast<std::size_t>(a.num_rows);
    for (int r = 0; r < a.num_rows; ++r) {
        Vec::store(scratch.states[r].sum, Vec::set1(0.0f));
        scratch.states[r].top = kNothingSeen;
    }
    __builtin_memset(a.out, 0, sizeof(float) * static_cast<std::size_t>(a.num_rows) * static_cast<std::size_t>(dim));
    Tile tile;
    for (int first = 0; first < a.lengths[a.num_rows - 1]; first += kTile) attend_tile<Cache>(a, first, scratch, tile);
    for (int r = 0; r < a.num_rows; ++r) {
        const float sum = Vec::reduce_add(Vec::load(scratch.states[r].sum));
        scale_row(a.out + r * dim, dim, 1.0f / sum, a.out + r * dim);
    }
}

void attend(const AttendArgs& a) {
    switch (a.kv->dtype) {
        case KvDtype::kFloat32: return attend_as<Float32Cache>(a);
        case KvDtype::kFloat16: return attend_as<Float16Cache>(a);
        case KvDtype::kInt8: return attend_as<Int8Cache>(a);
    }
}

}  // namespace
}  // namespace headway
