// What an artifact's metadata says of its answers, and which inputs its model accepts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "artifact.hpp"
#include "tensor.hpp"

namespace ferry {

// One label for a text, or one for each of its words.
enum class Task { text_classification, token_classification };

// The batch sizes, sequence lengths (padding included) and ids that the model accepts.
struct Limits {
    std::int64_t min_batch;
    std::int64_t min_length;
    std::int64_t max_length;
    std::int64_t min_id;
    std::int64_t max_id;
};

// Probabilities are softmax(logits / temperature); the best label is no answer where its own is below the threshold.
struct Contract {
    Task task;
    std::vector<std::string> labels;
    double temperature;
    double threshold;
    Limits limits;
};

// Throws ArtifactError if the artifact asks for something that this program does not know.
Contract read_contract(const Artifact& artifact);

// Throws std::invalid_argument unless the model accepts this batch, padding included.
void check_inputs(const Tensor<std::int64_t>& input_ids, const Tensor<std::int64_t>& attention_mask,
                  const Limits& limits);

}  // namespace ferry
