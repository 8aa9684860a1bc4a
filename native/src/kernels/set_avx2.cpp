#include "simd/vec_avx2.h"

#include "kernels/make_set.h"

namespace headway {

extern const KernelSet kAvx2Kernels;
constexpr KernelSet kAvx2Kernels = make_kernel_set("avx2");

}  // namespace headway
