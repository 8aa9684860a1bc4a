#include "simd/vec_vnni.h"

#include "kernels/make_set.h"

namespace headway {

extern const KernelSet kAvx512VnniKernels;
constexpr KernelSet kAvx512VnniKernels = make_kernel_set("avx512_vnni");

}  // namespace headway
