#include "options.hpp"

namespace ferry {
namespace {

constexpr int max_threads = 1024;

int parse_threads(const std::string& value) {
    const bool digits = !value.empty() && value.size() <= 9 && value.find_first_not_of("0123456789") == value.npos;
    const int threads = digits ? std::stoi(value) : 0;
    if (threads < 1 || threads > max_threads) {
        throw UsageError("--threads must be a whole number from 1 to " + std::to_string(max_threads) + "; got '" +
                         value + "'.");
    }
    return threads;
}

}  // namespace

const std::string_view help = R"(Usage: classify ARTIFACT [TEXT ...]
       classify ARTIFACT --json
       classify ARTIFACT --self-test

Classify texts with a Ferry artifact: one line for each, LABEL, a tab, PROBABILITY. LABEL is empty where no label is
probable enough. An artifact that tags words gives a line for each word, WORD, a tab, LABEL, a tab, PROBABILITY, and an
empty line after each text. Without a TEXT, each line of standard input is one.

  --json       each line of standard input is a request, {"text": "..."} or {"input_ids": [[...]],
               "attention_mask": [[...]]}, and each line of output its answer in JSON
  --self-test  replay the artifact's goldens and say whether every answer agrees
  --threads N  compute with N threads, 1 without it
  --public-key FILE
               require a signature by this key in PEM, and verify it before any model is loaded
  --signature FILE
               its file; without it, <name>-<version>.sig beside ARTIFACT
  --help       show this help
  --           texts that begin with '-' come after this

Exit status: 0 every text was answered, 1 the artifact or a text is wrong, 2 the command line is.
)";

std::optional<Options> parse_options(const std::vector<std::string>& arguments) {
    Options options;
    std::vector<std::string> positional;
    for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
        if (*argument == "--") {
            positional.insert(positional.end(), argument + 1, arguments.end());
            break;
        }
        if (*argument == "-h" || *argument == "--help") {
            return std::nullopt;
        }
        if (*argument == "--self-test") {
            options.self_test = true;
        } else if (*argument == "--json") {
            options.json = true;
        } else if (*argument == "--threads") {
            const bool last = argument + 1 == arguments.end();
            options.threads = parse_threads(last ? "" : *++argument);
        } else if (*argument == "--public-key" || *argument == "--signature") {
            std::string& file = *argument == "--public-key" ? options.public_key : options.signature;
            file = argument + 1 == arguments.end() ? "" : argument[1];
            if (file.empty()) {
                throw UsageError(*argument + " takes the name of a file.");
            }
            ++argument;
        } else if (argument->starts_with('-')) {
            throw UsageError(*argument + " is not an option; put -- before texts that begin with '-'.");
        } else {
            positional.push_back(*argument);
        }
    }
    if (positional.empty()) {
        throw UsageError("ARTIFACT is missing; give the folder of an artifact.");
    }
    if (options.self_test && options.json) {
        throw UsageError("--self-test takes no requests; give it or --json.");
    }
    if (options.self_test && positional.size() > 1) {
        throw UsageError("--self-test takes no texts; give one or the other.");
    }
    if (options.json && positional.size() > 1) {
        throw UsageError("--json takes no texts; write requests to standard input.");
    }
    if (!options.signature.empty() && options.public_key.empty()) {
        throw UsageError("--signature takes a --public-key to verify it with.");
    }
    options.artifact = positional.front();
    options.texts.assign(positional.begin() + 1, positional.end());
    return options;
}

}  // namespace ferry
