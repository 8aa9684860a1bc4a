#include "model/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "kernels/registry.h"

namespace headway {
namespace {

constexpr int kTries = 7;  // the fastest counts: a shared machine only ever takes away

/// Seconds of the fastest try of fn(thread) on all threads.
template <class Fn>
double fastest(ThreadPool& pool, Fn&& fn) {
    double best = 1e30;
    for (int i = 0; i < kTries; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        pool.run([&](Worker& worker) { worker.for_each(pool.num_threads(), fn); });
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
}

constexpr int kStreams = 4;  // reads in one stream stop short of what memory gives

std::uint64_t sum_of(const std::uint8_t* from, std::size_t stream_bytes) {
    std::uint64_t sums[kStreams][2] = {};
    for (std::size_t at = 0; at < stream_bytes; at += 64) {
        for (int s = 0; s < kStreams; ++s) {
            std::uint64_t line[8];
            std::memcpy(line, from + static_cast<std::size_t>(s) * stream_bytes + at, sizeof line);
            sums[s][0] += line[0] ^ line[2] ^ line[4] ^ line[6];
            sums[s][1] += line[1] ^ line[3] ^ line[5] ^ line[7];
        }
    }
    std::uint64_t total = 0;
    for (const auto& sum : sums) total += sum[0] + sum[1];
    return total;
}

}  // namespace

double product_peak(const std::string& kernel_set, bool quantized, int num_threads) {
    const KernelSet& set = find_kernel_set(kernel_set);
    ThreadPool pool(num_threads);
    constexpr int kSteps = 1 << 20;
    std::vector<double> products(static_cast<std::size_t>(num_threads));
    const double seconds = fastest(pool, [&](int i) {
        products[static_cast<std::size_t>(i)] = (quantized ? set.products_int8 : set.products_float32)(kSteps);
    });
    double total = 0.0;
    for (double some : products) total += some;
    return total / seconds;
}

double read_peak(int num_threads) {
    constexpr std::size_t kBytes = std::size_t{128} << 20;  // of all threads; far more than any cache keeps
    ThreadPool pool(num_threads);
    const std::size_t each = kBytes / static_cast<std::size_t>(num_threads) / (64 * kStreams) * (64 * kStreams);
    const Array<std::uint8_t> memory(each * static_cast<std::size_t>(num_threads));
    std::memset(memory.data(), 1, memory.size());  // untouched pages would all be the same one
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(num_threads));
    const double seconds = fastest(pool, [&](int i) {
        sums[static_cast<std::size_t>(i)] = sum_of(memory.data() + static_cast<std::size_t>(i) * each, each / kStreams);
    });
    for (std::uint64_t sum : sums) {
        if (sum == 1) return 0.0;  // never so; keeps the sums, and with them the reads, in the program
    }
    return static_cast<double>(memory.size()) / seconds;
}

}  // namespace headway
