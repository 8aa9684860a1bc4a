// Runs of indices, and how work is cut into them.
#pragma once

#include <cstdint>

namespace headway {

/// From begin up to, but without, end.
struct Range {
    int begin, end;
};

/// Where slice `index` of `count` nearly equal ones of `total` begins; the one before it ends there.
inline int slice(int total, int index, int count) {
    return static_cast<int>(static_cast<std::int64_t>(total) * index / count);
}

}  // namespace headway
