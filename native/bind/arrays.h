// NumPy arrays as the bindings take them: C order, on the CPU, of exactly this type; nothing is converted silently.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace headway {

namespace nb = nanobind;

using Floats1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats3 = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Ints1 = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints2 = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutFloats2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutFloats3 = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using OutDoubles1 = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutInts1 = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Array>
int extent(const Array& array, std::size_t axis) {
    const std::size_t n = array.shape(axis);
    if (n > static_cast<std::size_t>(1) << 30) throw std::invalid_argument("an array axis is too long");
    return static_cast<int>(n);
}

inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

void bind_ops(nb::module_& m);

}  // namespace headway
