// Replays an artifact's goldens.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "classifier.hpp"

namespace ferry {

// How many goldens were replayed, the largest difference between logits, and a sentence for each that differed.
struct SelfTest {
    std::size_t texts = 0;
    std::size_t batches = 0;
    double largest_difference = 0;
    std::vector<std::string> failures;
};

SelfTest self_test(const Classifier& classifier);

}  // namespace ferry
