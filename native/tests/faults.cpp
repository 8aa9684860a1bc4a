// Memory and threads that the system refuses: an error that can be caught, at whatever point it strikes.
//
// The program's own pthread_create, aligned_alloc and operator new stand before the system's (or a sanitizer's) and
// refuse on demand.
#include "faults.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <system_error>

#include "check.h"
#include "tiny_model.h"

namespace {

constexpr int kEndless = std::numeric_limits<int>::max() / 2;
std::atomic<int> allocations_left{kEndless}, threads_left{kEndless};

bool refused(std::atomic<int>& left) {
    return left.load(std::memory_order_relaxed) < kEndless && left.fetch_sub(1, std::memory_order_relaxed) <= 0;
}

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define HW_EXPORT extern "C" __attribute__((visibility("default")))

HW_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                             void* context) noexcept {
    static auto* const real = next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
    return refused(threads_left) ? EAGAIN : real(thread, attributes, start, context);
}

HW_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    static auto* const real = next<void*(std::size_t, std::size_t)>("aligned_alloc");
    return refused(allocations_left) ? nullptr : real(alignment, size);
}

// Never inlined: a compiler that looks inside would see `free` for what `operator new` gave, and warn.
#define HW_OPERATOR __attribute__((visibility("default"), noinline))

HW_OPERATOR void* operator new(std::size_t size) {
    void* memory = refused(allocations_left) ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
HW_OPERATOR void operator delete(void* memory) noexcept { std::free(memory); }
HW_OPERATOR void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace headway::test {

void fail_allocations_after(int count) { allocations_left = count; }
void fail_threads_after(int count) { threads_left = count; }
void stop_failing() { allocations_left = threads_left = kEndless; }

namespace {

/// Runs fn with the first allocation refused, then with the second, and so on until it needs no more; `between` runs
/// after each refusal.
template <class Fn, class Between>
void at_every_allocation(Fn&& fn, Between&& between) {
    for (int count = 0;; ++count) {
        fail_allocations_after(count);
        try {
            fn();
            stop_failing();
            return;
        } catch (const std::bad_alloc&) {
            stop_failing();
        } catch (const std::exception& other) {
            stop_failing();
            expect(false, "refused memory is std::bad_alloc, not", other.what());
            return;  // it may come again for ever
        }
        between();
    }
}

void check_memory(const TinyModel& tiny, WeightFormat format) {
    at_every_allocation(
        [&] {
            Model model(tiny.config, format, "auto", 2);
            fill(model, tiny);
            KvCache cache(tiny.config, KvDtype::kInt8, 16, 5, 2);
        },
        [] {});
}

/// A step that found no memory changes nothing that was there; a smaller one right after it must work.
void check_memory_of_a_step(const TinyModel& tiny) {
    Model model(tiny.config, WeightFormat::kInt8, "auto", 2);
    fill(model, tiny);
    KvCache cache(tiny.config, KvDtype::kInt8, 16, 30, 0);
    const std::vector<float> before = run_lanes(model, cache, {{0, 5, {0}}});
    std::vector<int> table;
    for (int i = 1; i < 30; ++i) table.push_back(i);
    int num_tokens = 60;
    at_every_allocation(
        [&] { run_lanes(model, cache, {{0, num_tokens, table}}); },
        [&] {
            const std::vector<float> after = run_lanes(model, cache, {{0, 5, {0}}});
            expect(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0,
                   "a step without memory leaves no trace");
            num_tokens += 3;  // the next one has to grow again
        });
}

void check_threads(const TinyModel& tiny) {
    for (int count : {0, 1, 6}) {
        fail_threads_after(count);
        expect_refused<std::system_error>([&] { Model(tiny.config, WeightFormat::kInt8, "auto", 8); },
                                          "a thread that cannot start");
        stop_failing();
    }
    Model model(tiny.config, WeightFormat::kInt8, "auto", 8);
}

}  // namespace

void check_faults() {
    const TinyModel tiny = tiny_models()[1];
    check_threads(tiny);
    check_memory(tiny, WeightFormat::kFloat32);
    check_memory(tiny, WeightFormat::kInt8);
    check_memory_of_a_step(tiny);
}

}  // namespace headway::test
