// The native code without Python: one program that proves on any machine that values are right, that scheduling is
// invisible bit by bit, and that whatever is wrong or missing comes back as an exception. Runs under the sanitizers and
// under an emulator of another processor too.
#include <cstdlib>
#include <cstring>
#include <exception>
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

/// Whatever a part throws is a failure of that part; the others still run.
void run(const Part& part) {
    const int before = num_failures;
    try {
        part.check();
    } catch (const std::exception& error) {
        expect(false, part.name, error.what());
    } catch (...) {
        expect(false, part.name, "threw what is no std::exception");
    }
    std::printf("%-8s %s\n", part.name, num_failures == before ? "all well" : "FAILED");
    std::fflush(stdout);
}

}  // namespace

/// Runs the parts named on the command line, or all of them.
int main(int argc, char** argv) {
    std::string sets;
    for (const std::string& set : headway::runnable_kernel_sets()) sets += " " + set;
    std::printf("kernel sets:%s\n", sets.c_str());
    for (const Part& part : kParts) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], part.name) == 0;
        if (wanted) run(part);
    }
    return num_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
