#include "core/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace headway {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

#ifdef HEADWAY_SANITIZE
constexpr std::size_t kMapFrom = SIZE_MAX;  // the heap, so that the sanitizer sees every bound
constexpr std::size_t kChunk = 0;           // the same
#else
constexpr std::size_t kMapFrom = std::size_t{1} << 20;
constexpr std::size_t kChunk = std::size_t{32} << 20;
#endif

std::size_t physical_bytes() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

std::size_t checked_product(std::size_t a, std::size_t b) {
    std::size_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) throw std::bad_alloc();
    return product;
}

void require_memory(std::size_t num_bytes) {
    if (num_bytes > physical_bytes()) throw std::bad_alloc();
}

Buffer::Buffer(std::size_t num_bytes) : size_(num_bytes) {
    if (num_bytes == 0) return;
    require_memory(num_bytes);
    if (num_bytes < kMapFrom) {
        data_ = static_cast<std::uint8_t*>(std::aligned_alloc(kCacheLine, round_up(num_bytes, kCacheLine)));
        if (data_ == nullptr) throw std::bad_alloc();
        std::memset(data_, 0, num_bytes);
        return;
    }
    const std::size_t length = round_up(num_bytes, kHugePage);
    void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapped_ = length;
    data_ = static_cast<std::uint8_t*>(memory);
#ifdef MADV_HUGEPAGE
    madvise(memory, length, MADV_HUGEPAGE);  // advice only: ordinary pages work too
#endif
}

Buffer::~Buffer() {
    if (mapped_ != 0) {
        munmap(data_, mapped_);
    } else {
        std::free(data_);
    }
}

std::uint8_t* Arena::take(std::size_t num_bytes) {
    require_memory(num_bytes);
    const std::size_t length = round_up(num_bytes, kCacheLine);
    if (length > left_) {
        Buffer chunk(std::max(length, kChunk));
        chunks_.push_back(std::move(chunk));
        next_ = chunks_.back().data();
        left_ = chunks_.back().size();
    }
    left_ -= length;
    return std::exchange(next_, next_ + length);
}

}  // namespace headway
