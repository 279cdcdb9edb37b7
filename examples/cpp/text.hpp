// The text rules of an artifact.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

// Throws std::invalid_argument, naming the first wrong byte, unless the text is valid UTF-8.
void check_utf8(std::string_view text);

// U+0000 becomes a space, runs of U+0009 to U+000D and U+0020 become one, the ends are stripped.
std::string normalise_text(std::string_view text);

}  // namespace ferry
