// What this machine could do at most, measured now: the yardstick beside a step's times.
#pragma once

#include <string>

namespace headway {

/// Multiply-accumulates per second of a kernel set's own product step on registers alone, all threads together.
/// Throws std::invalid_argument for a set that cannot run here.
double product_peak(const std::string& kernel_set, bool quantized, int num_threads);

/// Bytes per second that all threads together read from memory, each in several streams.
double read_peak(int num_threads);

}  // namespace headway
