#include "simd/vec_scalar.h"

#include "kernels/make_set.h"

namespace headway {

extern const KernelSet kScalarKernels;
constexpr KernelSet kScalarKernels = make_kernel_set("scalar");

}  // namespace headway
