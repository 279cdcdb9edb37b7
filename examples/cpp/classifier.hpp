// Text to label, with an artifact's TorchScript model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "artifact.hpp"
#include "tokenizer.hpp"

namespace ferry {

inline constexpr std::size_t batch_size = 32;

// The batch sizes, sequence lengths (padding included) and ids that the model accepts.
struct Limits {
    std::int64_t min_batch;
    std::int64_t min_length;
    std::int64_t max_length;
    std::int64_t min_id;
    std::int64_t max_id;
};

// The most probable label, its probability in 0 ... 1, and how many pieces of the text were dropped unread.
struct Answer {
    std::string label;
    double probability = 0;
    std::int64_t dropped = 0;
};

// Throws std::invalid_argument unless the model accepts this batch, padding included.
void check_inputs(const Matrix<std::int64_t>& input_ids, const Matrix<std::int64_t>& attention_mask,
                  const Limits& limits);

// Its const functions may be called by several threads at once.
class Classifier {
public:
    // `threads` compute an answer; Torch keeps this number for the whole process. More than one helps a large model on
    // idle cores; on busy cores they wait for each other. Throws ArtifactError.
    explicit Classifier(const std::filesystem::path& folder, int threads = 1);
    ~Classifier();

    // Throws std::invalid_argument if a text is not valid UTF-8.
    std::vector<Answer> classify(std::span<const std::string> texts) const;

    // (batch, sequence) ids and mask, 1 at a token and 0 at padding -> (batch, labels). The inputs are checked first.
    Matrix<float> logits(const Matrix<std::int64_t>& input_ids, const Matrix<std::int64_t>& attention_mask) const;
    Matrix<float> logits(std::span<const Encoding> encodings) const;

    // Softmax over one row of logits.
    Answer answer(std::span<const float> logits, std::int64_t dropped) const;

    const Artifact& artifact() const { return artifact_; }
    const Tokenizer& tokenizer() const { return tokenizer_; }
    const Limits& limits() const { return limits_; }
    const std::vector<std::string>& labels() const { return labels_; }

private:
    struct Model;

    Artifact artifact_;
    std::vector<std::string> labels_;
    Limits limits_;
    Tokenizer tokenizer_;
    std::unique_ptr<Model> model_;
};

}  // namespace ferry
