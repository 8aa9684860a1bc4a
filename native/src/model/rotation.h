// Orthogonal transforms that spread outliers, applied to weights once at load.
#pragma once

#include <cstddef>
#include <vector>

namespace headway {

/// The rotation Q of the residual stream: an inverse DCT of size m across blocks, a Walsh-Hadamard transform inside
/// each block, where hidden_size = m * (a power of two, as large as it divides). Replacing every matrix W that reads
/// the residual by W Q and every one that writes it by Q^T W changes nothing but rounding: RMSNorm commutes with a
/// rotation once its weight is folded away (QuaRot, arXiv 2404.00456). Activations then have no outlier channels, and
/// one int8 scale per token is enough.
class Rotation {
public:
    explicit Rotation(int hidden_size);

    int size() const { return num_blocks_ * block_size_; }

    /// Transforms `inner` vectors at once: entry i of vector j is values[i * inner + j]. `scratch` holds as many
    /// values.
    void apply(float* values, std::size_t inner, float* scratch) const;

private:
    int num_blocks_;
    int block_size_;
    std::vector<float> dct_;  // num_blocks_ x num_blocks_
};

/// Largest transform the kernels can apply to the input of the down projection: a power of two, 1 for none.
int online_hadamard_size(int ffn_size);

/// What the kernels do to that input, scaled to be orthogonal, on one row of the matrix behind it.
void hadamard_row(float* row, int ffn_size, int size);

}  // namespace headway
