#include "contract.hpp"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace ferry {
namespace {

using nlohmann::json;

void check_runtime(const std::string& minimum) {
    char major[7];
    char minor[7];
    char patch[7];
    if (std::sscanf(minimum.c_str(), "%6[0-9].%6[0-9].%6[0-9]", major, minor, patch) != 3) {
        throw ArtifactError("manifest.json: metadata.minimum_runtime.libtorch must be a version; got " + minimum + ".");
    }
    const std::array wanted{std::stoi(major), std::stoi(minor), std::stoi(patch)};
    if (std::array{TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH} < wanted) {
        throw ArtifactError("the artifact needs libtorch " + minimum +
                            " or newer; this is " TORCH_VERSION ". Upgrade it.");
    }
}

Task read_task(const Artifact& artifact) {
    const std::string task = artifact.fact(Kind::string, {"task"});
    if (task == "text-classification") {
        return Task::text_classification;
    }
    if (task == "token-classification") {
        return Task::token_classification;
    }
    throw ArtifactError("manifest.json: metadata.task must be text-classification or token-classification; got " +
                        task + ". Use a program that knows it.");
}

std::vector<std::string> read_labels(const Artifact& artifact) {
    const json& labels = artifact.fact(Kind::list, {"labels"});
    if (labels.empty() || !std::ranges::all_of(labels, [](const json& label) { return label.is_string(); })) {
        throw ArtifactError("manifest.json: metadata.labels must be a list of strings, at least one.");
    }
    return labels;
}

Limits read_limits(const Artifact& artifact) {
    const auto limit = [&](const char* what, const char* end) {
        return artifact.fact(Kind::whole_number, {"limits", what, end}).get<std::int64_t>();
    };
    return {limit("batch_size", "min"), limit("sequence_length", "min"), limit("sequence_length", "max"),
            limit("input_ids", "min"), limit("input_ids", "max")};
}

}  // namespace

Contract read_contract(const Artifact& artifact) {
    artifact.require(format, Kind::whole_number, {"format"});
    Contract contract{};
    contract.task = read_task(artifact);
    artifact.require("softmax", Kind::string, {"activation"});
    artifact.require("sentencepiece-bpe", Kind::string, {"tokenizer", "kind"});
    check_runtime(artifact.fact(Kind::string, {"minimum_runtime", "libtorch"}));
    contract.labels = read_labels(artifact);
    contract.temperature = artifact.fact(Kind::number, {"temperature"});
    if (!(contract.temperature > 0)) {
        throw ArtifactError("manifest.json: metadata.temperature must be above 0.");
    }
    contract.threshold = artifact.fact(Kind::number, {"threshold"});
    if (!(contract.threshold >= 0 && contract.threshold <= 1)) {
        throw ArtifactError("manifest.json: metadata.threshold must lie in 0 to 1.");
    }
    contract.limits = read_limits(artifact);
    return contract;
}

void check_inputs(const Tensor<std::int64_t>& input_ids, const Tensor<std::int64_t>& attention_mask,
                  const Limits& limits) {
    for (const auto& [name, tensor] :
         {std::pair("input_ids", &input_ids), std::pair("attention_mask", &attention_mask)}) {
        if (tensor->shape.size() != 2) {
            throw std::invalid_argument(std::string(name) + " must be (batch, sequence); got " + tensor->shape_text() +
                                        ". Reshape it.");
        }
        if (!tensor->is_whole()) {
            throw std::invalid_argument(std::string(name) + " must hold as many values as its shape says, " +
                                        tensor->shape_text() + "; got " + std::to_string(tensor->values.size()) +
                                        ". Give one for each position.");
        }
    }
    if (attention_mask.shape != input_ids.shape) {
        throw std::invalid_argument("attention_mask must have the shape of input_ids, " + input_ids.shape_text() +
                                    "; got " + attention_mask.shape_text() + ". Give one mask value for each id.");
    }
    const std::int64_t batch = input_ids.shape[0];
    const std::int64_t length = input_ids.shape[1];
    if (batch < limits.min_batch) {
        throw std::invalid_argument("the batch must hold at least " + std::to_string(limits.min_batch) + " row; got " +
                                    std::to_string(batch) + ". Skip empty batches.");
    }
    if (length < limits.min_length || length > limits.max_length) {
        throw std::invalid_argument("the sequence must be " + std::to_string(limits.min_length) + " to " +
                                    std::to_string(limits.max_length) + " tokens long, padding included; got " +
                                    std::to_string(length) + ". Truncate the text as the tokenizer does.");
    }
    for (const std::int64_t id : input_ids.values) {
        if (id < limits.min_id || id > limits.max_id) {
            throw std::invalid_argument("input_ids must lie in " + std::to_string(limits.min_id) + " to " +
                                        std::to_string(limits.max_id) + " at every position, padding too; got " +
                                        std::to_string(id) + ". Use the tokenizer of this artifact.");
        }
    }
    for (const std::int64_t value : attention_mask.values) {
        if (value != 0 && value != 1) {
            throw std::invalid_argument("attention_mask must hold 1 (token) and 0 (padding) only; got " +
                                        std::to_string(value) + ".");
        }
    }
}

}  // namespace ferry
