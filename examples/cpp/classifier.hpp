// Text to labels, with an artifact's TorchScript model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "artifact.hpp"
#include "contract.hpp"
#include "tensor.hpp"
#include "tokenizer.hpp"

namespace ferry {

inline constexpr std::size_t batch_size = 32;

// The most probable label and its probability in 0 ... 1; no label where that is below the artifact's threshold.
struct Decision {
    std::optional<std::string> label;
    double probability = 0;
};

// The answer for a text: its ids, and how many of its pieces were dropped unread.
struct Answer {
    Decision decision;
    std::vector<std::int64_t> input_ids;
    std::int64_t dropped = 0;
};

// A word and its answer; no label and probability 0 where truncation dropped it.
struct Word {
    std::string word;
    Decision decision;
};

// The answers for the words of a text.
struct Tags {
    std::vector<Word> words;
    std::vector<std::int64_t> input_ids;
    std::int64_t dropped = 0;
};

// Its const functions may be called by several threads at once.
class Classifier {
public:
    // `threads` compute an answer; Torch keeps this number for the whole process. More than one helps a large model on
    // idle cores; on busy cores they wait for each other. Throws ArtifactError.
    explicit Classifier(const std::filesystem::path& folder, int threads = 1, const Signed& required = {});
    ~Classifier();

    // One label for each text. Throws std::invalid_argument if a text is not valid UTF-8 or the artifact tags words.
    std::vector<Answer> classify(std::span<const std::string> texts) const;
    // One label for each word. Throws std::invalid_argument if a text is not valid UTF-8 or the artifact tags none.
    std::vector<Tags> tag(std::span<const std::string> texts) const;

    // Text to ids, and to words where the artifact tags them.
    Encoding encode(std::string_view text) const;
    // (batch, sequence) ids and mask, 1 at a token and 0 at padding -> (batch, labels), or (batch, sequence, labels)
    // of an artifact that tags words. The inputs are checked first.
    Tensor<float> logits(const Tensor<std::int64_t>& input_ids, const Tensor<std::int64_t>& attention_mask) const;
    Tensor<float> logits(std::span<const Encoding> encodings) const;

    // Softmax over one row of logits.
    Decision decide(std::span<const float> logits) const;
    // The words of row `row` of a batch, with their answers.
    std::vector<Word> decide_words(const Encoding& encoding, const Tensor<float>& logits, std::size_t row) const;

    const Artifact& artifact() const { return artifact_; }
    const Contract& contract() const { return contract_; }
    const Tokenizer& tokenizer() const { return tokenizer_; }

private:
    struct Model;

    void require(Task task, const std::string& advice) const;

    Artifact artifact_;
    Contract contract_;
    Tokenizer tokenizer_;
    std::unique_ptr<Model> model_;
};

}  // namespace ferry
