// What every kernel translation unit shares.
//
// Each is compiled with its own instruction set, so nothing in these headers may have external linkage: the linker
// would keep one copy of an inline function for all, and an old processor would run the new one's. Hence the unnamed
// namespaces, and no standard library templates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define HW_INLINE inline __attribute__((always_inline))

namespace headway {
namespace {

template <class T>
HW_INLINE T load_as(const void* from) {
    T value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
HW_INLINE void store_as(void* to, T value) {
    __builtin_memcpy(to, &value, sizeof value);
}

HW_INLINE int min_of(int a, int b) { return a < b ? a : b; }
HW_INLINE int max_of(int a, int b) { return a > b ? a : b; }

constexpr float kHalfMax = 65504.0f;  // largest float16; larger values are stored as this, never as infinity

}  // namespace
}  // namespace headway
