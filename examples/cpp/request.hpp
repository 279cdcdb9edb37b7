// The requests of the JSON mode, read strictly: what one language's parser overlooks, another's would not.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "tensor.hpp"

namespace ferry {

struct TextRequest {
    std::string text;
};

struct IdsRequest {
    Tensor<std::int64_t> input_ids;
    Tensor<std::int64_t> attention_mask;
};

using Request = std::variant<TextRequest, IdsRequest>;

// Throws std::invalid_argument.
Request parse_request(const std::string& line);

}  // namespace ferry
