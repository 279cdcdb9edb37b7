// The command line.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

extern const std::string_view help;

// The command line is wrong.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct Options {
    std::string artifact;
    std::vector<std::string> texts;
    bool self_test = false;
    bool json = false;
    int threads = 1;
    // Files; empty where they are not given.
    std::string public_key;
    std::string signature;
};

// What the command line asks for; nothing stands for --help. Throws UsageError.
std::optional<Options> parse_options(const std::vector<std::string>& arguments);

}  // namespace ferry
