#include "simd/vec_int16_avx512.h"

#include "kernels/make_set.h"

namespace headway {

extern const KernelSet kAvx512Kernels;
constexpr KernelSet kAvx512Kernels = make_kernel_set("avx512");

}  // namespace headway
