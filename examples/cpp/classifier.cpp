#include "classifier.hpp"

#include <ATen/Parallel.h>
#include <torch/script.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <utility>

namespace ferry {

struct Classifier::Model {
    torch::jit::Module module;
};

namespace {

using nlohmann::json;

const std::string model_file = "model.pt";
const std::string metadata_file = "ferry.json";

// Torch's messages go on for many lines of backtrace.
std::string first_line(const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string message = torch_error ? torch_error->what_without_backtrace() : error.what();
    return message.substr(0, message.find('\n'));
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

const Artifact& check_metadata(const Artifact& artifact) {
    artifact.require(format, Kind::whole_number, {"format"});
    artifact.require("text-classification", Kind::string, {"task"});
    artifact.require("softmax", Kind::string, {"activation"});
    artifact.require("sentencepiece-bpe", Kind::string, {"tokenizer", "kind"});
    check_runtime(artifact.fact(Kind::string, {"minimum_runtime", "libtorch"}));
    return artifact;
}

torch::jit::Module load_model(const Artifact& artifact) {
    std::istringstream stream(artifact.read_checked(model_file));
    torch::jit::ExtraFilesMap extra_files{{metadata_file, ""}};
    torch::jit::Module module;
    try {
        module = torch::jit::load(stream, torch::kCPU, extra_files);
    } catch (const std::exception& error) {
        throw ArtifactError(model_file + " can't be loaded: " + first_line(error));
    }
    const std::string& metadata = extra_files.at(metadata_file);
    if (metadata.empty()) {
        throw ArtifactError(model_file + " carries no Ferry metadata.");
    }
    if (parse_json(metadata, model_file).dump() != artifact.metadata().dump()) {
        throw ArtifactError(model_file + " carries other metadata than manifest.json: it is another artifact's model.");
    }
    const auto& arguments = module.get_method("forward").function().getSchema().arguments();
    if (arguments.size() != 3 || arguments[1].name() != "input_ids" || arguments[2].name() != "attention_mask") {
        throw ArtifactError(model_file + " must take input_ids and attention_mask and give logits.");
    }
    module.eval();
    return module;
}

// Torch takes a pointer to values that it only reads as one to values that it may change.
at::Tensor view(const Matrix<std::int64_t>& matrix) {
    return torch::from_blob(const_cast<std::int64_t*>(matrix.values.data()), {matrix.rows, matrix.columns}, at::kLong);
}

}  // namespace

void check_inputs(const Matrix<std::int64_t>& input_ids, const Matrix<std::int64_t>& attention_mask,
                  const Limits& limits) {
    for (const auto& [name, matrix] :
         {std::pair("input_ids", &input_ids), std::pair("attention_mask", &attention_mask)}) {
        if (matrix->rows < 0 || matrix->columns < 0 ||
            static_cast<std::int64_t>(matrix->values.size()) != matrix->rows * matrix->columns) {
            throw std::invalid_argument(std::string(name) + " must hold rows * columns values; got " +
                                        std::to_string(matrix->values.size()) + " for " + matrix->shape() + ".");
        }
    }
    if (attention_mask.rows != input_ids.rows || attention_mask.columns != input_ids.columns) {
        throw std::invalid_argument("attention_mask must have the shape of input_ids, " + input_ids.shape() + "; got " +
                                    attention_mask.shape() + ". Give one mask value for each id.");
    }
    if (input_ids.rows < limits.min_batch) {
        throw std::invalid_argument("the batch must hold at least " + std::to_string(limits.min_batch) + " row; got " +
                                    std::to_string(input_ids.rows) + ". Skip empty batches.");
    }
    if (input_ids.columns < limits.min_length || input_ids.columns > limits.max_length) {
        throw std::invalid_argument("the sequence must be " + std::to_string(limits.min_length) + " to " +
                                    std::to_string(limits.max_length) + " tokens long, padding included; got " +
                                    std::to_string(input_ids.columns) + ". Truncate the text as the tokenizer does.");
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

Classifier::Classifier(const std::filesystem::path& folder, int threads)
    : artifact_(folder),
      labels_(read_labels(check_metadata(artifact_))),
      limits_(read_limits(artifact_)),
      tokenizer_(artifact_) {
    at::set_num_threads(threads);
    model_ = std::make_unique<Model>(Model{load_model(artifact_)});
}

Classifier::~Classifier() = default;

Matrix<float> Classifier::logits(const Matrix<std::int64_t>& input_ids,
                                 const Matrix<std::int64_t>& attention_mask) const {
    check_inputs(input_ids, attention_mask, limits_);
    const c10::InferenceMode guard;
    at::Tensor logits;
    try {
        logits = model_->module.forward({view(input_ids), view(attention_mask)}).toTensor().contiguous();
    } catch (const std::exception& error) {
        throw ArtifactError(model_file + " failed: " + first_line(error));
    }
    const auto num_labels = static_cast<std::int64_t>(labels_.size());
    if (logits.scalar_type() != at::kFloat || logits.sizes() != at::IntArrayRef({input_ids.rows, num_labels})) {
        throw ArtifactError(model_file + " must answer with one float32 for each of " + std::to_string(num_labels) +
                            " labels.");
    }
    const float* values = logits.const_data_ptr<float>();
    return {input_ids.rows, num_labels, {values, values + logits.numel()}};
}

Matrix<float> Classifier::logits(std::span<const Encoding> encodings) const {
    std::size_t length = 0;
    for (const Encoding& encoding : encodings) {
        length = std::max(length, encoding.ids.size());
    }
    const auto rows = static_cast<std::int64_t>(encodings.size());
    const auto columns = static_cast<std::int64_t>(length);
    Matrix<std::int64_t> input_ids{rows, columns, std::vector(encodings.size() * length, tokenizer_.pad_id())};
    Matrix<std::int64_t> attention_mask{rows, columns, std::vector<std::int64_t>(encodings.size() * length, 0)};
    for (std::size_t row = 0; row < encodings.size(); ++row) {
        const auto& ids = encodings[row].ids;
        const auto start = static_cast<std::ptrdiff_t>(row * length);
        std::ranges::copy(ids, input_ids.values.begin() + start);
        std::fill_n(attention_mask.values.begin() + start, ids.size(), 1);
    }
    return logits(input_ids, attention_mask);
}

std::vector<Answer> Classifier::classify(std::span<const std::string> texts) const {
    std::vector<Answer> answers;
    for (std::size_t start = 0; start < texts.size(); start += batch_size) {
        std::vector<Encoding> encodings;
        for (const std::string& text : texts.subspan(start, std::min(batch_size, texts.size() - start))) {
            encodings.push_back(tokenizer_.encode(text));
        }
        const Matrix<float> rows = logits(encodings);
        for (std::size_t i = 0; i < encodings.size(); ++i) {
            answers.push_back(answer(rows.row(static_cast<std::int64_t>(i)), encodings[i].dropped));
        }
    }
    return answers;
}

Answer Classifier::answer(std::span<const float> logits, std::int64_t dropped) const {
    if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
        throw ArtifactError(model_file + " answered with numbers that are not finite.");
    }
    const auto best = std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) {
        sum += std::exp(static_cast<double>(logit) - static_cast<double>(*best));
    }
    return {labels_[static_cast<std::size_t>(best - logits.begin())], 1 / sum, dropped};
}

}  // namespace ferry
