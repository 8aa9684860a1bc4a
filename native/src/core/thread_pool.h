// Threads that run one function together, in phases of small tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace headway {

class ThreadPool;

/// What one thread of a running job sees: its index, and tasks handed out one at a time.
class Worker {
public:
    Worker(ThreadPool& pool, int index, std::uint32_t phase) : pool_(pool), index_(index), phase_(phase) {}

    int index() const { return index_; }
    int num_threads() const;

    /// A phase: calls fn(i) for each i in [0, num_tasks), on whichever thread is free, and returns when all are done;
    /// what they wrote is visible then. Every thread of the job goes through the same phases with the same num_tasks.
    /// A phase ends with its last task and does not wait for threads: one that the system has put aside holds nobody
    /// up, and passes by the phases it has missed when it comes back.
    template <class Fn>
    void for_each(int num_tasks, Fn&& fn) {
        if (num_tasks <= 0) return;
        for (int i = next_task(num_tasks); i >= 0; i = next_task(num_tasks)) {
            fn(i);
            finish_task(num_tasks);
        }
        ++phase_;
    }

private:
    int next_task(int num_tasks);
    void finish_task(int num_tasks);
    ThreadPool& pool_;
    int index_;
    std::uint32_t phase_;
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

    /// Runs fn(Worker&) on the caller and on every thread that comes in time, and returns when all of them have ended.
    /// fn must do its work in phases and must not throw. One job at a time.
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
    bool enter();
    void leave();
    void stop();

    // Each on its own cache line: one is polled while others are written.
    alignas(64) std::atomic<std::uint32_t> job_number_{0};
    alignas(64) std::atomic<std::uint64_t> ticket_{0};    // the phase that runs, and its next task
    alignas(64) std::atomic<std::uint32_t> num_done_{0};  // tasks of that phase
    alignas(64) std::atomic<std::uint32_t> gate_{0};      // threads inside the job, and whether more may enter

    alignas(64) int num_threads_;
    std::atomic<bool> stopping_{false};  // read by a thread that comes too late for the last job, too
    Job job_ = nullptr;
    void* context_ = nullptr;
    std::uint32_t first_phase_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace headway
