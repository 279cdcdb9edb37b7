// One JSON request, one JSON answer.
#pragma once

#include <string>

#include "classifier.hpp"

namespace ferry {

struct Reply {
    std::string json;
    bool failed = false;
};

// {"text": "..."}, or {"input_ids": [[...]], "attention_mask": [[...]]}; a wrong request is answered {"error": "..."}.
Reply answer_request(const Classifier& classifier, const std::string& line);

}  // namespace ferry
