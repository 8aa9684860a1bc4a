#include "kernels/registry.h"

#include <stdexcept>

namespace headway {

extern const KernelSet kScalarKernels;
#ifdef HEADWAY_X86
extern const KernelSet kAvx2Kernels;
#endif
#ifdef HEADWAY_AVX512
extern const KernelSet kAvx512Kernels;
extern const KernelSet kAvx512VnniKernels;
#endif

namespace {

struct Entry {
    const KernelSet* set;
    bool (*runs_here)();
};

#ifdef HEADWAY_X86
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif

#ifdef HEADWAY_AVX512
#ifdef HEADWAY_EMULATE_AVX512
// A test build: these translation units hold AVX2 code that mimics the wider instructions.
bool has_avx512() { return has_avx2(); }
bool has_vnni() { return has_avx2(); }
#else
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#endif
#endif

const Entry kEntries[] = {
    {&kScalarKernels, [] { return true; }},
#ifdef HEADWAY_X86
    {&kAvx2Kernels, has_avx2},
#endif
#ifdef HEADWAY_AVX512
    {&kAvx512Kernels, has_avx512},
    {&kAvx512VnniKernels, has_vnni},
#endif
};

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

}  // namespace

std::vector<std::string> built_kernel_sets() {
    std::vector<std::string> names;
    for (const Entry& entry : kEntries) names.emplace_back(entry.set->name);
    return names;
}

std::vector<std::string> runnable_kernel_sets() {
    std::vector<std::string> names;
    for (const Entry& entry : kEntries) {
        if (entry.runs_here()) names.emplace_back(entry.set->name);
    }
    return names;
}

const KernelSet& find_kernel_set(const std::string& name) {
    const std::string wanted = name == "auto" ? runnable_kernel_sets().back() : name;
    for (const Entry& entry : kEntries) {
        if (wanted != entry.set->name) continue;
        if (!entry.runs_here()) {
            throw std::invalid_argument("kernel set '" + name +
                                        "' needs instructions this processor lacks; it can run " +
                                        joined(runnable_kernel_sets()));
        }
        return *entry.set;
    }
    throw std::invalid_argument("unknown kernel set '" + name + "'; this build has auto, " +
                                joined(built_kernel_sets()));
}

}  // namespace headway
