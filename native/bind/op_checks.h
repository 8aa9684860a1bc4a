/// What an operation called alone demands of its arguments; what breaks it is an exception for Python.
#pragma once

#include "bind/arrays.h"
#include "kernels/registry.h"

namespace headway {

inline constexpr int kMostInputs = 1 << 17;  // as in ModelConfig
inline constexpr int kMostTokens = 1 << 13;

inline void require_width(int n) { require(n >= 1 && n <= kMostInputs, "a row must have 1 to 131072 values"); }

inline void require_rows(const Floats2& x, const OutFloats2& out) {
    require(x.shape(0) == out.shape(0) && x.shape(1) == out.shape(1), "out must have the shape of the input");
    require_width(extent(x, 1));
}

inline void require_gate(const Floats2& gate_up, const OutFloats2& out) {
    require_width(extent(out, 1));
    require(extent(gate_up, 1) == 2 * extent(out, 1), "gate_up must be twice as wide as out");
    require(gate_up.shape(0) == out.shape(0), "gate_up and out must have as many rows");
}

inline void require_levels(const KernelSet& set, int levels) {
    require(levels >= 1 && levels <= set.act_levels, "levels must be 1 to the kernel set's own");
}

}  // namespace headway
