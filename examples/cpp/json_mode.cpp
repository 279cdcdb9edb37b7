#include "json_mode.hpp"

#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <variant>

#include "request.hpp"

namespace ferry {
namespace {

using json = nlohmann::ordered_json;

// ASCII only.
std::string dump(const json& value) { return value.dump(-1, ' ', true); }

json name_or_null(const std::optional<std::string>& label) { return label ? json(*label) : json(nullptr); }

// Lists nested as the tensor's shape says from `axis` on; `next` is the first value, and moves on.
json nest(const Tensor<float>& tensor, std::size_t axis, const float*& next) {
    json list = json::array();
    for (std::int64_t i = 0; i < tensor.shape[axis]; ++i) {
        if (axis + 1 == tensor.shape.size()) {
            list.push_back(static_cast<double>(*next++));
        } else {
            list.push_back(nest(tensor, axis + 1, next));
        }
    }
    return list;
}

json answer(const Classifier& classifier, const TextRequest& request) {
    const std::span texts(&request.text, 1);
    if (classifier.contract().task == Task::token_classification) {
        const Tags tags = classifier.tag(texts).front();
        json words = json::array();
        for (const auto& [word, decision] : tags.words) {
            words.push_back(
                {{"word", word}, {"label", name_or_null(decision.label)}, {"probability", decision.probability}});
        }
        return {{"words", std::move(words)}, {"dropped", tags.dropped}, {"input_ids", tags.input_ids}};
    }
    const auto [decision, input_ids, dropped] = classifier.classify(texts).front();
    return {{"label", name_or_null(decision.label)},
            {"probability", decision.probability},
            {"dropped", dropped},
            {"input_ids", input_ids}};
}

json answer(const Classifier& classifier, const IdsRequest& request) {
    const Tensor<float> logits = classifier.logits(request.input_ids, request.attention_mask);
    const float* next = logits.values.data();
    return {{"logits", nest(logits, 0, next)}};
}

}  // namespace

Reply answer_request(const Classifier& classifier, const std::string& line) {
    const auto answer_any = [&](const auto& request) { return answer(classifier, request); };
    try {
        return {dump(std::visit(answer_any, parse_request(line)))};
    } catch (const std::invalid_argument& error) {
        return {dump({{"error", error.what()}}), true};
    } catch (const ArtifactError& error) {
        return {dump({{"error", error.what()}}), true};
    }
}

}  // namespace ferry
