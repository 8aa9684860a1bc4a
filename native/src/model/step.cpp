#include "model/step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace headway {
namespace {

/// Slices of work per thread: enough that a thread which was interrupted holds the others up only briefly.
constexpr int kSlices = 4;

/// Most tiles of rows in a task when threads share rows: fewer read the weights more often. A thread's own rows hold
/// `kRowChunk`, however tall the tiles are.
constexpr int kTaskTiles = 6;

/// Where the tasks of a step end whose rows threads share, from its last row down to its first: task i has the rows
/// from ends[i + 1] to ends[i]. The later rows attend to more tokens, so they go first. Each task is a thread's share of
/// a third of what is left: the last ones are small, and no thread waits long for another at a layer's end.
void split_rows(int num_rows, int row_tile, int num_threads, std::vector<int>& ends) {
    const int most = std::min(kTaskTiles, kRowChunk / row_tile);
    ends.assign(1, num_rows);
    for (int tiles = (num_rows + row_tile - 1) / row_tile; tiles > 0;) {
        const int share = (tiles + 3 * num_threads - 1) / (3 * num_threads);
        tiles -= std::min({share, most, tiles});
        ends.push_back(tiles * row_tile);
    }
}

int padded(int n) { return static_cast<int>(round_up(static_cast<std::size_t>(n), kPad)); }

}  // namespace

Step::Step(const ModelConfig& config, const KernelSet& set, const Weights& weights, const KvCache& cache,
           const Batch& batch, Workspace& space)
    : config_(config), set_(set), weights_(weights), cache_(cache), batch_(batch), space_(space) {}

void Step::run(Worker& worker, StageClock& clock) const {
    const int num_rows = batch_.num_rows();
    worker.for_each(num_rows, [&](int row) {
        embed(row);
        set_angles(row);
    });
    clock.mark(Stage::kEmbed);
    num_rows < kRowChunk ? run_by_columns(worker, clock) : run_by_rows(worker, clock);
    finish_needed(worker, clock);
}

void Step::embed(int row) const { weights_.embed(batch_.row(row).token_id, hidden(row)); }

void Step::set_angles(int row) const {
    const int half = config_.rope_half();
    float* cos = space_.cos.data() + row * padded(half);
    float* sin = space_.sin.data() + row * padded(half);
    for (int i = 0; i < half; ++i) {
        const double angle = batch_.row(row).position * config_.rope_frequencies[static_cast<std::size_t>(i)];
        cos[i] = static_cast<float>(std::cos(angle));
        sin[i] = static_cast<float>(std::sin(angle));
    }
}

void Step::norm_row(int row, const Array<float>& weight, const PackedMatrix& next, const ActRows& acts,
                    int place) const {
    if (quantized()) {
        set_.rms_norm_quantize(hidden(row), config_.hidden_size, config_.norm_eps,
                               acts.quantized(place, next.input_levels()));
    } else {
        set_.rms_norm(hidden(row), weight.data(), config_.hidden_size, config_.norm_eps, acts.floats(place));
    }
}

void Step::append_row(int layer, int row, const float* qkv, Workspace::Thread& thread) const {
    const Row& at = batch_.row(row);
    if (at.lane < 0) return;
    const LayerWeights& weights = weights_.layer(layer);
    const KvView kv = cache_.layer(layer);
    const int dim = space_.padded_dim, heads = config_.num_heads, half = padded(config_.rope_half());
    const std::size_t act_bytes = kv.dtype == KvDtype::kInt8 ? static_cast<std::size_t>(set_.act_bytes) : sizeof(float);
    set_.append({
        .qkv = qkv,
        .num_heads = heads,
        .num_kv_heads = config_.num_kv_heads,
        .rope_half = config_.rope_half(),
        .cos = space_.cos.data() + row * half,
        .sin = space_.sin.data() + row * half,
        .q_norm = weights.q_norm.size() != 0 ? weights.q_norm.data() : nullptr,
        .k_norm = weights.k_norm.size() != 0 ? weights.k_norm.data() : nullptr,
        .norm_eps = config_.norm_eps,
        .query_scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(config_.head_dim)),
        .query_levels = std::min(set_.prob_levels / 2, 0x7FFFFFFF / 127 / dim),
        .kv = &kv,
        .block = at.block,
        .slot = at.slot,
        .queries =
            space_.queries.data() + static_cast<std::size_t>(row) * static_cast<std::size_t>(heads * dim) * act_bytes,
        .query_scales = space_.query_scales.data() + row * heads,
        .query_offsets = space_.query_offsets.data() + row * heads,
        .scratch = thread.append_scratch.data(),
    });
}

void Step::attend_group(int layer, const RowGroup& group, int kv_head, float* attended, int first_row,
                        Workspace::Thread& thread) const {
    const KvView kv = cache_.layer(layer);
    const int dim = space_.padded_dim, heads = config_.num_heads, shared = heads / config_.num_kv_heads;
    const bool quantized_cache = kv.dtype == KvDtype::kInt8;
    const std::size_t head_bytes =
        static_cast<std::size_t>(dim) * (quantized_cache ? static_cast<std::size_t>(set_.act_bytes) : sizeof(float));
    const std::size_t token_bytes = head_bytes * static_cast<std::size_t>(shared);
    for (int t = 0; t < group.num_rows; ++t) {
        const int first_head = (group.first_row + t) * heads + kv_head * shared;
        std::memcpy(thread.queries.data() + static_cast<std::size_t>(t) * token_bytes,
                    space_.queries.data() + static_cast<std::size_t>(first_head) * head_bytes, token_bytes);
        for (int h = 0; h < shared; ++h) {
            const std::size_t to = static_cast<std::size_t>(t * shared + h),
                              from = static_cast<std::size_t>(first_head + h);
            thread.query_scales[to] = space_.query_scales[from];
            thread.query_offsets[to] = space_.query_offsets[from];
            thread.lengths[to] = batch_.row(group.first_row + t).position + 1;
        }
    }
    set_.attend({
        .kv = &kv,
        .block_table = batch_.block_table(batch_.row(group.first_row).lane),
        .kv_head = kv_head,
        .num_rows = group.num_rows * shared,
        .queries = thread.queries.data(),
        .query_scales = quantized_cache ? thread.query_scales.data() : nullptr,
        .query_offsets = quantized_cache ? thread.query_offsets.data() : nullptr,
        .lengths = thread.lengths.data(),
        .prob_levels = set_.prob_levels,
        .out = thread.attend_out.data(),
        .scratch = thread.attend_scratch.data(),
    });
    for (int t = 0; t < group.num_rows; ++t) {
        float* out =
            attended + (group.first_row - first_row + t) * space_.attended_stride + kv_head * shared * config_.head_dim;
        for (int h = 0; h < shared; ++h) {
            std::memcpy(out + h * config_.head_dim, thread.attend_out.data() + (t * shared + h) * dim,
                        sizeof(float) * static_cast<std::size_t>(config_.head_dim));
        }
    }
}

void Step::quantize_attended(const LayerWeights& layer, Workspace::Rows& rows, int place) const {
    const float* attended = rows.attended.data() + place * space_.attended_stride;
    if (quantized()) {
        set_.quantize(attended, config_.query_size(), rows.acts.quantized(place, layer.output.input_levels()));
    } else {
        std::memcpy(rows.acts.floats(place), attended,
                    sizeof(float) * static_cast<std::size_t>(padded(config_.query_size())));
    }
}

void Step::gate_row(const LayerWeights& layer, Workspace::Rows& rows, int place, Workspace::Thread& thread) const {
    const float* gate_up = rows.wide.data() + place * space_.wide_stride;
    if (quantized()) {
        set_.silu_mul_quantize(gate_up, config_.ffn_size, weights_.hadamard(),
                               rows.gated.quantized(place, layer.down.input_levels()), thread.gate_scratch.data());
    } else {
        set_.silu_mul(gate_up, config_.ffn_size, rows.gated.floats(place));
    }
}

void Step::columns(Worker& worker, const PackedMatrix& matrix, const ActRows& acts, float* out, std::ptrdiff_t stride,
                   Epilogue epilogue) const {
    const int count = std::min(matrix.num_panels(), worker.num_threads() * kSlices);
    worker.for_each(count, [&](int i) {
        const Range panels{slice(matrix.num_panels(), i, count), slice(matrix.num_panels(), i + 1, count)};
        matrix.multiply(acts, out, stride, epilogue, {0, batch_.num_rows()}, panels);
    });
}

/// Into how many tasks the kv heads of a group are split. One after the other they read the cache in one run, which is
/// faster; but a group that is long beside the others would keep one thread busy while the rest wait.
int Step::head_splits(const std::vector<RowGroup>& groups, int num_threads) const {
    std::int64_t all = 0, longest = 0;
    for (const RowGroup& group : groups) {
        const std::int64_t length = batch_.row(group.first_row + group.num_rows - 1).position + 1;
        all += length;
        longest = std::max(longest, length);
    }
    return longest * num_threads * kSlices <= all ? 1 : config_.num_kv_heads;
}

/// Few rows: all threads work on the same rows and share the matrices' columns.
void Step::run_by_columns(Worker& worker, StageClock& clock) const {
    Workspace::Rows& rows = space_.shared;
    Workspace::Thread& mine = space_.threads[static_cast<std::size_t>(worker.index())];
    const int num_rows = batch_.num_rows();
    batch_.groups(0, num_rows, space_.group_tokens, mine.groups);
    const int num_groups = static_cast<int>(mine.groups.size());
    const int splits = head_splits(mine.groups, worker.num_threads());
    for (int l = 0; l < config_.num_layers; ++l) {
        const LayerWeights& layer = weights_.layer(l);
        worker.for_each(num_rows, [&](int i) { norm_row(i, layer.attn_norm, layer.qkv, rows.acts, i); });
        clock.mark(Stage::kNorm);
        columns(worker, layer.qkv, rows.acts, rows.wide.data(), space_.wide_stride, Epilogue::kStore);
        clock.mark(Stage::kQkv);
        worker.for_each(num_rows, [&](int i) { append_row(l, i, rows.wide.data() + i * space_.wide_stride, mine); });
        clock.mark(Stage::kAppend);
        worker.for_each(num_groups * splits, [&](int i) {
            const RowGroup& group = mine.groups[static_cast<std::size_t>(i / splits)];
            const int end = slice(config_.num_kv_heads, i % splits + 1, splits);
            for (int h = slice(config_.num_kv_heads, i % splits, splits); h < end; ++h) {
                attend_group(l, group, h, rows.attended.data(), 0, mine);
            }
        });
        clock.mark(Stage::kAttend);
        worker.for_each(num_rows, [&](int i) { quantize_attended(layer, rows, i); });
        clock.mark(Stage::kNorm);
        columns(worker, layer.output, rows.acts, space_.hidden.data(), space_.hidden_stride, Epilogue::kAdd);
        clock.mark(Stage::kOutput);
        worker.for_each(num_rows, [&](int i) { norm_row(i, layer.ffn_norm, layer.gate_up, rows.acts, i); });
        clock.mark(Stage::kNorm);
        columns(worker, layer.gate_up, rows.acts, rows.wide.data(), space_.wide_stride, Epilogue::kStore);
        clock.mark(Stage::kGateUp);
        worker.for_each(num_rows, [&](int i) { gate_row(layer, rows, i, mine); });
        clock.mark(Stage::kGate);
        columns(worker, layer.down, rows.gated, space_.hidden.data(), space_.hidden_stride, Epilogue::kAdd);
        clock.mark(Stage::kDown);
    }
}

void Step::first_half(int l, Range range, Workspace::Thread& mine, StageClock& clock) const {
    const LayerWeights& layer = weights_.layer(l);
    Workspace::Rows& rows = mine.rows;
    const int count = range.end - range.begin;
    for (int i = 0; i < count; ++i) norm_row(range.begin + i, layer.attn_norm, layer.qkv, rows.acts, i);
    clock.mark(Stage::kNorm);
    layer.qkv.multiply(rows.acts, rows.wide.data(), space_.wide_stride, Epilogue::kStore, {0, count},
                       {0, layer.qkv.num_panels()});
    clock.mark(Stage::kQkv);
    for (int i = 0; i < count; ++i) append_row(l, range.begin + i, rows.wide.data() + i * space_.wide_stride, mine);
    clock.mark(Stage::kAppend);
}

void Step::second_half(int l, Range range, Workspace::Thread& mine, StageClock& clock) const {
    const LayerWeights& layer = weights_.layer(l);
    Workspace::Rows& rows = mine.rows;
    const int count = range.end - range.begin;
    batch_.groups(range.begin, range.end, space_.group_tokens, mine.groups);
    for (const RowGroup& group : mine.groups) {
        for (int h = 0; h < config_.num_kv_heads; ++h)
            attend_group(l, group, h, rows.attended.data(), range.begin, mine);
    }
    clock.mark(Stage::kAttend);
    for (int i = 0; i < count; ++i) quantize_attended(layer, rows, i);
    clock.mark(Stage::kNorm);
    layer.output.multiply(rows.acts, hidden(range.begin), space_.hidden_stride, Epilogue::kAdd, {0, count},
                          {0, layer.output.num_panels()});
    clock.mark(Stage::kOutput);
    for (int i = 0; i < count; ++i) norm_row(range.begin + i, layer.ffn_norm, layer.gate_up, rows.acts, i);
    clock.mark(Stage::kNorm);
    layer.gate_up.multiply(rows.acts, rows.wide.data(), space_.wide_stride, Epilogue::kStore, {0, count},
                           {0, layer.gate_up.num_panels()});
    clock.mark(Stage::kGateUp);
    for (int i = 0; i < count; ++i) gate_row(layer, rows, i, mine);
    clock.mark(Stage::kGate);
    layer.down.multiply(rows.gated, hidden(range.begin), space_.hidden_stride, Epilogue::kAdd, {0, count},
                        {0, layer.down.num_panels()});
    clock.mark(Stage::kDown);
}

/// Many rows: each thread takes a run of them through everything between two reads of the cache, so that what it
/// computes stays in its own cache and threads meet once a layer. Behind the last layer's keys and values only the needed
/// rows go on: nobody reads what the others would give.
void Step::run_by_rows(Worker& worker, StageClock& clock) const {
    Workspace::Thread& mine = space_.threads[static_cast<std::size_t>(worker.index())];
    split_rows(batch_.num_rows(), set_.row_tile, worker.num_threads(), mine.task_ends);
    const int count = static_cast<int>(mine.task_ends.size()) - 1;
    const auto task = [&](int i) {
        const auto at = static_cast<std::size_t>(i);
        return Range{mine.task_ends[at + 1], mine.task_ends[at]};
    };
    worker.for_each(count, [&](int i) { first_half(0, task(i), mine, clock); });
    clock.mark(Stage::kWait);
    const int last = config_.num_layers - 1;
    for (int l = 0; l < last; ++l) {
        worker.for_each(count, [&](int i) {
            second_half(l, task(i), mine, clock);
            first_half(l + 1, task(i), mine, clock);
        });
        clock.mark(Stage::kWait);
    }
    worker.for_each(count, [&](int i) { second_half(last, batch_.needed_within(task(i)), mine, clock); });
    clock.mark(Stage::kWait);
}

void Step::finish_needed(Worker& worker, StageClock& clock) const {
    const std::vector<int>& needed = batch_.needed_rows();
    worker.for_each(static_cast<int>(needed.size()), [&](int i) {
        norm_row(needed[static_cast<std::size_t>(i)], weights_.norm(), weights_.head(), space_.needed, i);
    });
    clock.mark(Stage::kNorm);
}

}  // namespace headway
