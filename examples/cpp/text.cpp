#include "text.hpp"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace ferry {
namespace {

// The length of the character that begins at `offset`, or 0 if it is not valid UTF-8 (Unicode 15, table 3-7).
std::size_t character_length(std::string_view text, std::size_t offset) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) {
        return 1;
    }
    const std::size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || length > text.size() - offset) {
        return 0;
    }
    // Overlong forms, surrogates and what lies above U+10FFFF are told from the second byte.
    const unsigned char lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(1) < lowest || byte(1) > highest) {
        return 0;
    }
    for (std::size_t i = 2; i < length; ++i) {
        if (byte(i) < 0x80 || byte(i) > 0xbf) {
            return 0;
        }
    }
    return length;
}

}  // namespace

void check_utf8(std::string_view text, const std::string& what) {
    for (std::size_t offset = 0; offset < text.size();) {
        const std::size_t length = character_length(text, offset);
        if (length == 0) {
            char byte[8];
            std::snprintf(byte, sizeof byte, "0x%02x", static_cast<unsigned char>(text[offset]));
            throw std::invalid_argument(what + " must be valid UTF-8; got the byte " + byte + " at offset " + std::to_string(offset) + ". Convert it to UTF-8 first.");
        }
        offset += length;
    }
}

std::string normalise_text(std::string_view text) {
    std::string normal;
    bool space_before = false;
    for (const char c : text) {
        if (c == '\0' || c == ' ' || (c >= '\t' && c <= '\r')) {
            space_before = true;
            continue;
        }
        if (space_before && !normal.empty()) {
            normal += ' ';
        }
        space_before = false;
        normal += c;
    }
    return normal;
}

std::vector<std::string> split_words(std::string_view normal) {
    std::vector<std::string> words;
    while (!normal.empty()) {
        const std::size_t length = std::min(normal.find(' '), normal.size());
        words.emplace_back(normal.substr(0, length));
        normal.remove_prefix(std::min(length + 1, normal.size()));
    }
    return words;
}

}  // namespace ferry
