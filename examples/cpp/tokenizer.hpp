// Text to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ferry {

// A word, and where among the ids its first piece stands; nowhere if truncation dropped it.
struct EncodedWord {
    std::string word;
    std::optional<std::size_t> position;
};

// The token ids of a text, how many pieces were dropped because the model takes no more, and the words if asked for.
struct Encoding {
    std::vector<std::int64_t> ids;
    std::int64_t dropped = 0;
    std::vector<EncodedWord> words;
};

class Tokenizer {
public:
    explicit Tokenizer(const Artifact& artifact);
    ~Tokenizer();

    // cls, the first max_pieces() pieces, sep. Throws std::invalid_argument if the text is not valid UTF-8.
    Encoding encode(std::string_view text) const;
    // The same, word by word: no piece reaches from one word into the next, so the ids are those of the whole text.
    Encoding encode_words(std::string_view text) const;

    std::int64_t max_pieces() const { return max_pieces_; }
    std::int64_t pad_id() const { return pad_id_; }

private:
    std::vector<int> pieces(std::string_view normal) const;

    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
    std::int64_t max_pieces_;
    std::int64_t pad_id_;
    std::int64_t cls_id_;
    std::int64_t sep_id_;
};

}  // namespace ferry
