// Memory that starts at a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace neuralcde::LEVEL {

// Memory aligned to a cache line.
template <class Item>
class Aligned {
  public:
    explicit Aligned(size_t count = 0) : memory(count * sizeof(Item) + 64), count(count) {
        const auto address = reinterpret_cast<uintptr_t>(memory.data());
        first = reinterpret_cast<Item*>((address + 63) / 64 * 64);
    }
    Aligned(Aligned&&) noexcept = default;
    Aligned& operator=(Aligned&&) noexcept = default;
    Item* data() { return first; }
    const Item* data() const { return first; }
    size_t size() const { return count; }

  private:
    std::vector<unsigned char> memory;  // zeroed
    size_t count;
    Item* first;
};

}  // namespace neuralcde::LEVEL
