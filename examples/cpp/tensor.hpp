// Numbers and their shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ferry {

// Row-major: the last axis varies fastest.
template <typename Value>
struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<Value> values;

    // Whether there are as many values as the shape says.
    bool is_whole() const {
        std::size_t count = 1;
        for (const std::int64_t size : shape) {
            if (size < 0 || __builtin_mul_overflow(count, static_cast<std::size_t>(size), &count)) {
                return false;
            }
        }
        return count == values.size();
    }

    // The values along the last axis; `index` counts over all the other axes.
    std::span<const Value> row(std::size_t index) const {
        const auto size = static_cast<std::size_t>(shape.back());
        return std::span(values).subspan(index * size, size);
    }

    std::string shape_text() const {
        std::string text;
        for (const std::int64_t size : shape) {
            text.append(text.empty() ? "" : ", ").append(std::to_string(size));
        }
        return "(" + text + ")";
    }
};

}  // namespace ferry
