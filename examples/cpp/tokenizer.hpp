// Text to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "artifact.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ferry {

// The token ids of a text, and how many pieces were dropped because the model takes no more.
struct Encoding {
    std::vector<std::int64_t> ids;
    std::int64_t dropped = 0;
};

class Tokenizer {
public:
    explicit Tokenizer(const Artifact& artifact);
    ~Tokenizer();

    // cls, the first max_pieces() pieces, sep. Throws std::invalid_argument if the text is not valid UTF-8.
    Encoding encode(std::string_view text) const;

    std::int64_t max_pieces() const { return max_pieces_; }
    std::int64_t pad_id() const { return pad_id_; }

private:
    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
    std::int64_t max_pieces_;
    std::int64_t pad_id_;
    std::int64_t cls_id_;
    std::int64_t sep_id_;
};

}  // namespace ferry
