#include "core/thread_pool.h"

#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headway {
namespace {

// About 100 microseconds: longer than any phase's imbalance, shorter than a scheduler's time slice.
constexpr int kSpins = 4000;

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void wait_while_equal(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int i = 0; i < kSpins; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
    }
    value.wait(old, std::memory_order_acquire);
}

/// Rounding to nearest, denormals kept, for the life of the object: a host program that set flush-to-zero on its own
/// thread would otherwise make that thread compute other bits than the pool's.
class DefaultRounding {
public:
#if defined(__x86_64__)
    DefaultRounding() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
    ~DefaultRounding() { _mm_setcsr(saved_); }

private:
    unsigned saved_;
#else
    DefaultRounding() {}
#endif
};

}  // namespace

int Worker::num_threads() const { return pool_.num_threads(); }

void Worker::barrier() { pool_.arrive(phase_++); }

int Worker::next_task() { return pool_.counters_[phase_ % 2].next.fetch_add(1, std::memory_order_relaxed); }

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
    if (num_threads < 1 || num_threads > kMaxThreads) {
        throw std::invalid_argument("num_threads is " + std::to_string(num_threads) + "; it must be 1 to " +
                                    std::to_string(kMaxThreads));
    }
    try {
        threads_.reserve(static_cast<std::size_t>(num_threads - 1));
        for (int i = 1; i < num_threads; ++i) threads_.emplace_back(&ThreadPool::loop, this, i);
    } catch (...) {
        stop();
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    stopping_ = true;
    job_number_.fetch_add(1, std::memory_order_release);
    job_number_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void ThreadPool::start(Job job, void* context) {
    job_ = job;
    context_ = context;
    counters_[0].next.store(0, std::memory_order_relaxed);
    job_number_.fetch_add(1, std::memory_order_release);
    job_number_.notify_all();
    work(0);
}

void ThreadPool::loop(int index) {
    std::uint32_t seen = 0;
    for (;;) {
        wait_while_equal(job_number_, seen);
        ++seen;
        if (stopping_) return;
        work(index);
    }
}

void ThreadPool::work(int index) {
    DefaultRounding rounding;
    Worker worker(*this, index);
    job_(context_, worker);
    worker.barrier();
}

void ThreadPool::arrive(unsigned phase) {
    const std::uint32_t number = barrier_number_.load(std::memory_order_relaxed);
    if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < num_threads_) {
        wait_while_equal(barrier_number_, number);
        return;
    }
    // The last to arrive. Nobody draws from the other counter: all have left the phase that used it.
    counters_[(phase + 1) % 2].next.store(0, std::memory_order_relaxed);
    num_arrived_.store(0, std::memory_order_relaxed);
    barrier_number_.store(number + 1, std::memory_order_release);
    barrier_number_.notify_all();
}

}  // namespace headway
