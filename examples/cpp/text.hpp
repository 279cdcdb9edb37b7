// The text rules of an artifact.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

// Throws std::invalid_argument, naming `what` and its first wrong byte, unless the text is valid UTF-8.
void check_utf8(std::string_view text, const std::string& what = "the text");

// U+0000 becomes a space, runs of U+0009 to U+000D and U+0020 become one, the ends are stripped.
std::string normalise_text(std::string_view text);

// The words of a normalised text: runs of characters other than the space.
std::vector<std::string> split_words(std::string_view normal);

}  // namespace ferry
