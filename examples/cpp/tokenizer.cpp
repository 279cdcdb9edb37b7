#include "tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "text.hpp"

namespace ferry {

Tokenizer::Tokenizer(const Artifact& artifact)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      max_pieces_(artifact.fact(Kind::whole_number, {"limits", "sequence_length", "max"}).get<std::int64_t>() - 2),
      pad_id_(artifact.fact(Kind::whole_number, {"tokenizer", "reserved_ids", "pad"})),
      cls_id_(artifact.fact(Kind::whole_number, {"tokenizer", "reserved_ids", "cls"})),
      sep_id_(artifact.fact(Kind::whole_number, {"tokenizer", "reserved_ids", "sep"})) {
    const std::int64_t max_id = artifact.fact(Kind::whole_number, {"limits", "input_ids", "max"});
    if (max_pieces_ < 0 || std::max({pad_id_, cls_id_, sep_id_}) > max_id) {
        throw ArtifactError("manifest.json: metadata.limits leave no room for cls, sep and pad.");
    }
    const std::string file = artifact.fact(Kind::string, {"tokenizer", "file"});
    const std::string model = artifact.read_checked(file);
    if (artifact.sha256(file) != artifact.fact(Kind::string, {"tokenizer", "sha256"})) {
        throw ArtifactError(file + " is not the tokenizer that the model was trained with: their SHA-256 differ.");
    }
    if (!processor_->LoadFromSerializedProto(model).ok()) {
        throw ArtifactError(file + " is not a SentencePiece model.");
    }
    if (processor_->GetPieceSize() != max_id + 1) {
        throw ArtifactError(file + " has " + std::to_string(processor_->GetPieceSize()) + " pieces; the model takes " +
                            std::to_string(max_id + 1) + ".");
    }
}

Tokenizer::~Tokenizer() = default;

Encoding Tokenizer::encode(std::string_view text) const {
    check_utf8(text);
    const std::vector<int> all = pieces(normalise_text(text));
    const auto kept = std::min(static_cast<std::int64_t>(all.size()), max_pieces_);
    Encoding encoding;
    encoding.ids.push_back(cls_id_);
    encoding.ids.insert(encoding.ids.end(), all.begin(), all.begin() + kept);
    encoding.ids.push_back(sep_id_);
    encoding.dropped = static_cast<std::int64_t>(all.size()) - kept;
    return encoding;
}

Encoding Tokenizer::encode_words(std::string_view text) const {
    check_utf8(text);
    Encoding encoding;
    encoding.ids.push_back(cls_id_);
    std::int64_t room = max_pieces_;
    for (std::string& word : split_words(normalise_text(text))) {
        const std::vector<int> all = pieces(word);
        const auto kept = std::min(static_cast<std::int64_t>(all.size()), room);
        encoding.words.push_back({std::move(word), kept > 0 ? std::optional(encoding.ids.size()) : std::nullopt});
        encoding.ids.insert(encoding.ids.end(), all.begin(), all.begin() + kept);
        encoding.dropped += static_cast<std::int64_t>(all.size()) - kept;
        room -= kept;
    }
    encoding.ids.push_back(sep_id_);
    return encoding;
}

std::vector<int> Tokenizer::pieces(std::string_view normal) const {
    std::vector<int> found;
    const auto status = processor_->Encode(normal, &found);
    if (!status.ok()) {
        throw ArtifactError("the tokenizer failed: " + status.ToString() + ".");
    }
    return found;
}

}  // namespace ferry
