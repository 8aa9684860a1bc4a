// Which kernel sets this build has, and which this processor can run.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel_set.h"

namespace headway {

/// Names of all sets in this build, plainest first.
std::vector<std::string> built_kernel_sets();

/// Names of the sets this processor can run, plainest first; the last is the fastest.
std::vector<std::string> runnable_kernel_sets();

/// The set of that name, or the fastest for "auto". Throws std::invalid_argument for a name this build does not know
/// or a set this processor lacks the instructions for.
const KernelSet& find_kernel_set(const std::string& name);

}  // namespace headway
