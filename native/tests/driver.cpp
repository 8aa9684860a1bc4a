// The native code without Python: one program that proves on any machine that values are right, that scheduling is
// invisible bit by bit, and that whatever is wrong or missing comes back as an exception. Runs under the sanitizers and
// under an emulator of another processor too.
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.h"
#include "kernels/registry.h"

namespace {

struct Part {
    const char* name;
    void (*check)();
};

using namespace headway::test;

constexpr Part kParts[] = {
    {"refusals", check_refusals}, {"faults", check_faults}, {"values", check_values}, {"bits", check_bits}};

}  // namespace

/// Runs the parts named on the command line, or all of them.
int main(int argc, char** argv) {
    std::string sets;
    for (const std::string& set : headway::runnable_kernel_sets()) sets += " " + set;
    std::printf("kernel sets:%s\n", sets.c_str());
    for (const Part& part : kParts) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], part.name) == 0;
        if (!wanted) continue;
        const int before = num_failures;
        part.check();
        std::printf("%-8s %s\n", part.name, num_failures == before ? "all well" : "FAILED");
        std::fflush(stdout);
    }
    return num_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
