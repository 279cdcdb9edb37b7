#include "classifier.hpp"

#include <ATen/Parallel.h>
#include <torch/script.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
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
at::Tensor view(const Tensor<std::int64_t>& tensor) {
    return torch::from_blob(const_cast<std::int64_t*>(tensor.values.data()), tensor.shape, at::kLong);
}

// Calls `answer` with each encoding, the logits of its batch and its row in them.
template <typename Use>
void answer_in_batches(const Classifier& classifier, std::span<const std::string> texts, const Use& answer) {
    for (std::size_t start = 0; start < texts.size(); start += batch_size) {
        std::vector<Encoding> encodings;
        for (const std::string& text : texts.subspan(start, std::min(batch_size, texts.size() - start))) {
            encodings.push_back(classifier.encode(text));
        }
        const Tensor<float> logits = classifier.logits(encodings);
        for (std::size_t row = 0; row < encodings.size(); ++row) {
            answer(encodings[row], logits, row);
        }
    }
}

}  // namespace

Classifier::Classifier(const std::filesystem::path& folder, int threads, const Signed& required)
    : artifact_(folder, required), contract_(read_contract(artifact_)), tokenizer_(artifact_) {
    at::set_num_threads(threads);
    model_ = std::make_unique<Model>(Model{load_model(artifact_)});
}

Classifier::~Classifier() = default;

std::vector<Answer> Classifier::classify(std::span<const std::string> texts) const {
    require(Task::text_classification, "this artifact tags words; call tag.");
    std::vector<Answer> answers;
    answer_in_batches(*this, texts, [&](Encoding& encoding, const Tensor<float>& logits, std::size_t row) {
        answers.push_back({decide(logits.row(row)), std::move(encoding.ids), encoding.dropped});
    });
    return answers;
}

std::vector<Tags> Classifier::tag(std::span<const std::string> texts) const {
    require(Task::token_classification, "this artifact classifies whole texts; call classify.");
    std::vector<Tags> answers;
    answer_in_batches(*this, texts, [&](Encoding& encoding, const Tensor<float>& logits, std::size_t row) {
        std::vector<Word> words = decide_words(encoding, logits, row);
        answers.push_back({std::move(words), std::move(encoding.ids), encoding.dropped});
    });
    return answers;
}

Encoding Classifier::encode(std::string_view text) const {
    return contract_.task == Task::token_classification ? tokenizer_.encode_words(text) : tokenizer_.encode(text);
}

Tensor<float> Classifier::logits(const Tensor<std::int64_t>& input_ids,
                                 const Tensor<std::int64_t>& attention_mask) const {
    check_inputs(input_ids, attention_mask, contract_.limits);
    const c10::InferenceMode guard;
    at::Tensor logits;
    try {
        logits = model_->module.forward({view(input_ids), view(attention_mask)}).toTensor().contiguous();
    } catch (const std::exception& error) {
        throw ArtifactError(model_file + " failed: " + first_line(error));
    }
    std::vector<std::int64_t> shape{input_ids.shape[0]};
    if (contract_.task == Task::token_classification) {
        shape.push_back(input_ids.shape[1]);
    }
    shape.push_back(static_cast<std::int64_t>(contract_.labels.size()));
    if (logits.scalar_type() != at::kFloat || logits.sizes() != at::IntArrayRef(shape)) {
        throw ArtifactError(model_file + " must answer with one float32 for each of " +
                            std::to_string(contract_.labels.size()) + " labels.");
    }
    const float* values = logits.const_data_ptr<float>();
    Tensor<float> answer{std::move(shape), {values, values + logits.numel()}};
    if (!std::ranges::all_of(answer.values, [](float logit) { return std::isfinite(logit); })) {
        throw ArtifactError(model_file + " answered with numbers that are not finite.");
    }
    return answer;
}

Tensor<float> Classifier::logits(std::span<const Encoding> encodings) const {
    std::size_t length = 0;
    for (const Encoding& encoding : encodings) {
        length = std::max(length, encoding.ids.size());
    }
    const std::vector shape{static_cast<std::int64_t>(encodings.size()), static_cast<std::int64_t>(length)};
    Tensor<std::int64_t> input_ids{shape, std::vector(encodings.size() * length, tokenizer_.pad_id())};
    Tensor<std::int64_t> attention_mask{shape, std::vector<std::int64_t>(encodings.size() * length, 0)};
    for (std::size_t row = 0; row < encodings.size(); ++row) {
        const auto& ids = encodings[row].ids;
        const auto start = static_cast<std::ptrdiff_t>(row * length);
        std::ranges::copy(ids, input_ids.values.begin() + start);
        std::fill_n(attention_mask.values.begin() + start, ids.size(), 1);
    }
    return logits(input_ids, attention_mask);
}

Decision Classifier::decide(std::span<const float> logits) const {
    const auto best = std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) {
        sum += std::exp((static_cast<double>(logit) - static_cast<double>(*best)) / contract_.temperature);
    }
    Decision decision{std::nullopt, 1 / sum};
    if (!(decision.probability < contract_.threshold)) {
        decision.label = contract_.labels[static_cast<std::size_t>(best - logits.begin())];
    }
    return decision;
}

std::vector<Word> Classifier::decide_words(const Encoding& encoding, const Tensor<float>& logits,
                                           std::size_t row) const {
    const auto length = static_cast<std::size_t>(logits.shape[1]);
    std::vector<Word> words;
    for (const auto& [word, position] : encoding.words) {
        words.push_back({word, position ? decide(logits.row(row * length + *position)) : Decision{}});
    }
    return words;
}

void Classifier::require(Task task, const std::string& advice) const {
    if (contract_.task != task) {
        throw std::invalid_argument(advice);
    }
}

}  // namespace ferry
