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

template <class T>
void wait_while_equal(const std::atomic<T>& value, T old) {
    for (int i = 0; i < kSpins; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        relax();
    }
    value.wait(old, std::memory_order_acquire);
}

constexpr std::uint32_t kOpen = 1u << 31;  // of the gate

constexpr std::uint64_t first_ticket(std::uint32_t phase) { return static_cast<std::uint64_t>(phase) << 32; }
constexpr std::uint32_t phase_of(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket >> 32); }
constexpr std::uint32_t task_of(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket); }

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

/// Draws a task, or waits for the phase to end and returns -1.
int Worker::next_task(int num_tasks) {
    std::uint64_t ticket = pool_.ticket_.load(std::memory_order_acquire);
    while (phase_of(ticket) == phase_) {
        if (task_of(ticket) >= static_cast<std::uint32_t>(num_tasks)) {
            wait_while_equal(pool_.ticket_, ticket);
            ticket = pool_.ticket_.load(std::memory_order_acquire);
        } else if (pool_.ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                                       std::memory_order_acquire)) {
            return static_cast<int>(task_of(ticket));
        }
    }
    return -1;
}

/// The thread that ends a phase's last task opens the next phase.
void Worker::finish_task(int num_tasks) {
    if (pool_.num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 < static_cast<std::uint32_t>(num_tasks)) return;
    pool_.num_done_.store(0, std::memory_order_relaxed);
    pool_.ticket_.store(first_ticket(phase_ + 1), std::memory_order_release);
    pool_.ticket_.notify_all();
}

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
    stopping_.store(true, std::memory_order_relaxed);
    job_number_.fetch_add(1, std::memory_order_release);
    job_number_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void ThreadPool::start(Job job, void* context) {
    job_ = job;
    context_ = context;
    first_phase_ = phase_of(ticket_.load(std::memory_order_relaxed));
    gate_.store(kOpen | 1u, std::memory_order_release);
    job_number_.fetch_add(1, std::memory_order_release);
    job_number_.notify_all();
    work(0);
    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    leave();
    // Threads still inside only pass by phases that are over; the job's data must outlive them.
    for (std::uint32_t inside = gate_.load(std::memory_order_acquire); inside != 0;
         inside = gate_.load(std::memory_order_acquire)) {
        wait_while_equal(gate_, inside);
    }
}

bool ThreadPool::enter() {
    std::uint32_t gate = gate_.load(std::memory_order_relaxed);
    while ((gate & kOpen) != 0) {
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_relaxed))
            return true;
    }
    return false;
}

void ThreadPool::leave() {
    if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_all();
}

void ThreadPool::loop(int index) {
    std::uint32_t seen = 0;
    for (;;) {
        wait_while_equal(job_number_, seen);
        seen = job_number_.load(std::memory_order_acquire);
        if (stopping_.load(std::memory_order_relaxed)) return;
        if (!enter()) continue;
        work(index);
        leave();
    }
}

void ThreadPool::work(int index) {
    DefaultRounding rounding;
    Worker worker(*this, index, first_phase_);
    job_(context_, worker);
}

}  // namespace headway
