// Memory for weights, caches and workspaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace headway {

/// Zero-filled memory, aligned to a cache line. Large buffers come straight from the kernel: they ask for huge pages,
/// and a page costs nothing until it is touched. Throws std::bad_alloc when the machine cannot hold it.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t num_bytes);
    ~Buffer();
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::uint8_t* data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    void swap(Buffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(mapped_, other.mapped_);
    }
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t mapped_ = 0;  // length of the mapping; 0 when the heap holds the bytes
};

/// Zero-filled runs of bytes, aligned to a cache line, that live as long as it does. They lie side by side in large
/// buffers, so that those which are too small for huge pages of their own share some.
class Arena {
public:
    /// The next run. Throws std::bad_alloc, and is as before then.
    std::uint8_t* take(std::size_t num_bytes);

private:
    std::vector<Buffer> chunks_;
    std::uint8_t* next_ = nullptr;
    std::size_t left_ = 0;
};

/// A Buffer of `count` plain values.
template <class T>
class Array {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Array() = default;
    explicit Array(std::size_t count) : buffer_(checked_bytes(count)), count_(count) {}

    T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
    std::size_t size() const { return count_; }
    T& operator[](std::size_t i) const { return data()[i]; }

    /// Makes room for `count` values; what was in it is lost when it has to grow.
    void at_least(std::size_t count) {
        if (count > count_) *this = Array(count);
    }

private:
    static std::size_t checked_bytes(std::size_t count);
    Buffer buffer_;
    std::size_t count_ = 0;
};

/// a * b, or std::bad_alloc when the product does not fit.
std::size_t checked_product(std::size_t a, std::size_t b);

template <class T>
std::size_t Array<T>::checked_bytes(std::size_t count) {
    return checked_product(count, sizeof(T));
}

/// Throws std::bad_alloc when the machine has less memory than that altogether: an overcommitting kernel would grant it
/// and kill the process later, when the pages are touched.
void require_memory(std::size_t num_bytes);

constexpr std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

}  // namespace headway
