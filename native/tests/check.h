// What every test of the driver uses.
#pragma once

#include <cstdio>

namespace headway::test {

inline int num_failures = 0;

inline void expect(bool holds, const char* what, const char* where = "") {
    if (holds) return;
    std::fprintf(stderr, "FAILED: %s %s\n", what, where);
    ++num_failures;
}

/// Calls fn and expects exactly this error.
template <class Error, class Fn>
void expect_refused(Fn&& fn, const char* what) {
    try {
        fn();
    } catch (const Error&) {
        return;
    }
    expect(false, what);
}

void check_values();
void check_bits();
void check_refusals();
void check_faults();

}  // namespace headway::test
