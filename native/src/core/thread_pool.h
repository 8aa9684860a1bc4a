// Threads that run one function together, with barriers inside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace headway {

class ThreadPool;

/// What one thread of a running job sees: its index, the barrier, and tasks handed out one at a time.
class Worker {
public:
    Worker(ThreadPool& pool, int index) : pool_(pool), index_(index) {}

    int index() const { return index_; }
    int num_threads() const;

    /// Returns once every thread of the job has arrived; what they wrote before is visible after.
    void barrier();

    /// Calls fn(i) for each i in [0, num_tasks), on whichever thread is free, then waits for all of them.
    /// Every thread of the job must call it with the same num_tasks.
    template <class Fn>
    void for_each(int num_tasks, Fn&& fn) {
        for (int i = next_task(); i < num_tasks; i = next_task()) fn(i);
        barrier();
    }

private:
    int next_task();
    ThreadPool& pool_;
    int index_;
    unsigned phase_ = 0;
};

/// A fixed number of threads, the caller being the first. They spin for a moment between jobs, then sleep.
/// The constructor throws std::system_error when a thread cannot start, leaving none behind.
class ThreadPool {
public:
    static constexpr int kMaxThreads = 256;

    explicit ThreadPool(int num_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int num_threads() const { return num_threads_; }

    /// Runs fn(Worker&) on every thread and returns when all have ended. fn must not throw.
    template <class Fn>
    void run(Fn&& fn) {
        start([](void* context, Worker& worker) { (*static_cast<Fn*>(context))(worker); }, &fn);
    }

private:
    friend class Worker;
    using Job = void (*)(void*, Worker&);

    void start(Job job, void* context);
    void loop(int index);
    void work(int index);
    void stop();
    void arrive(unsigned phase);

    // Each on its own cache line: one is polled while others are written.
    alignas(64) std::atomic<std::uint32_t> job_number_{0};
    alignas(64) std::atomic<std::uint32_t> barrier_number_{0};
    alignas(64) std::atomic<int> num_arrived_{0};
    struct alignas(64) Counter {
        std::atomic<int> next{0};
    };
    Counter counters_[2];  // one for the phase that runs, one made ready for the next

    int num_threads_;
    bool stopping_ = false;
    Job job_ = nullptr;
    void* context_ = nullptr;
    std::vector<std::thread> threads_;
};

}  // namespace headway
