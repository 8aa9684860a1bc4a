// The forward pass as a textbook has it, in double precision: what the native code must compute.
#pragma once

#include <vector>

#include "tiny_model.h"

namespace headway::test {

/// Logits of tokens 0 to num_tokens of a text, num_tokens x vocab_size; `text` as in `Lane`.
std::vector<double> plain_logits(const TinyModel& tiny, int num_tokens, int text = 0);

}  // namespace headway::test
