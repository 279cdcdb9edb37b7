// Classify texts with a Ferry artifact, from the command line.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "classifier.hpp"
#include "self_test.hpp"
#include "text.hpp"

namespace {

constexpr std::string_view help = R"(Usage: classify ARTIFACT [TEXT ...]
       classify ARTIFACT --self-test

Classify texts with a Ferry artifact: one line for each, LABEL, a tab, PROBABILITY.
Without a TEXT, each line of standard input is one.

  --self-test  replay the artifact's goldens and say whether every answer agrees
  --threads N  compute with N threads, 1 without it
  --help       show this help
  --           texts that begin with '-' come after this

Exit status: 0 every text was answered, 1 the artifact or a text is wrong, 2 the command line is.
)";
constexpr std::size_t chunk_bytes = 65536;
constexpr int max_threads = 1024;

// The command line is wrong.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct Options {
    std::string artifact;
    std::vector<std::string> texts;
    bool self_test = false;
    int threads = 1;
};

int parse_threads(const std::string& value) {
    const bool digits = !value.empty() && value.size() <= 9 && value.find_first_not_of("0123456789") == value.npos;
    const int threads = digits ? std::stoi(value) : 0;
    if (threads < 1 || threads > max_threads) {
        throw UsageError("--threads must be a whole number from 1 to " + std::to_string(max_threads) + "; got '" +
                         value + "'.");
    }
    return threads;
}

// What the command line asks for; nothing stands for --help.
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
        } else if (*argument == "--threads") {
            const bool last = argument + 1 == arguments.end();
            options.threads = parse_threads(last ? "" : *++argument);
        } else if (argument->starts_with('-')) {
            throw UsageError(*argument + " is not an option; put -- before texts that begin with '-'.");
        } else {
            positional.push_back(*argument);
        }
    }
    if (positional.empty()) {
        throw UsageError("ARTIFACT is missing; give the folder of an artifact.");
    }
    if (options.self_test && positional.size() > 1) {
        throw UsageError("--self-test takes no texts; give one or the other.");
    }
    options.artifact = positional.front();
    options.texts.assign(positional.begin() + 1, positional.end());
    return options;
}

void write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR) {
            throw std::runtime_error("standard output can't be written: " + std::string(std::strerror(errno)) + ".");
        }
        text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
}

using Batch = std::span<const std::string>;

void split_batches(Batch texts, const std::function<void(Batch)>& use) {
    for (std::size_t start = 0; start < texts.size(); start += ferry::batch_size) {
        use(texts.subspan(start, std::min(ferry::batch_size, texts.size() - start)));
    }
}

// The lines of standard input as they arrive. They are never held back until a batch is full, and memory holds no more
// than a chunk and the line that it ends in.
void read_batches(const std::function<void(Batch)>& use) {
    std::string chunk(chunk_bytes, '\0');
    std::string begun;
    for (;;) {
        const ssize_t size = ::read(STDIN_FILENO, chunk.data(), chunk.size());
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0) {
            throw std::runtime_error("standard input can't be read: " + std::string(std::strerror(errno)) + ".");
        }
        if (size == 0) {
            break;
        }
        std::string_view rest(chunk.data(), static_cast<std::size_t>(size));
        std::vector<std::string> lines;
        for (auto end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
            lines.push_back(begun.append(rest.substr(0, end)));
            begun.clear();
            rest.remove_prefix(end + 1);
        }
        begun.append(rest);
        split_batches(lines, use);
    }
    // A final newline ends a text and begins none.
    if (!begun.empty()) {
        use(Batch(&begun, 1));
    }
}

// Print one line for each text; `first` is the number of the first, for messages. The texts before one that is not
// valid UTF-8 are answered.
void classify(const ferry::Classifier& classifier, Batch batch, std::size_t first) {
    std::optional<std::invalid_argument> failure;
    std::size_t count = 0;
    for (; count < batch.size(); ++count) {
        try {
            ferry::check_utf8(batch[count]);
        } catch (const std::invalid_argument& error) {
            failure.emplace("text " + std::to_string(first + count) + ": " + error.what());
            break;
        }
    }
    const std::vector<ferry::Answer> answers = classifier.classify(batch.first(count));
    std::string lines;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        if (answers[i].dropped > 0) {
            std::cerr << "classify: text " << first + i << " is too long: the model read its first "
                      << classifier.tokenizer().max_pieces() << " pieces and not the " << answers[i].dropped
                      << " after them.\n";
        }
        char probability[32];
        std::snprintf(probability, sizeof probability, "\t%.6f\n", answers[i].probability);
        lines += answers[i].label + probability;
    }
    write_all(lines);
    if (failure) {
        throw *failure;
    }
}

int run_self_test(const ferry::Classifier& classifier) {
    const ferry::SelfTest result = ferry::self_test(classifier);
    for (const std::string& failure : result.failures) {
        std::cerr << "self-test: " << failure << "\n";
    }
    if (!result.failures.empty()) {
        return 1;
    }
    char difference[32];
    std::snprintf(difference, sizeof difference, "%.1e\n", result.largest_difference);
    write_all("self-test: " + std::to_string(result.texts) + " texts and " + std::to_string(result.batches) +
              " batches agree, largest difference " + difference);
    return 0;
}

int run(const Options& options) {
    const ferry::Classifier classifier(options.artifact, options.threads);
    if (options.self_test) {
        return run_self_test(classifier);
    }
    std::size_t number = 1;
    const auto use = [&](Batch batch) {
        classify(classifier, batch, number);
        number += batch.size();
    };
    if (options.texts.empty()) {
        read_batches(use);
    } else {
        split_batches(options.texts, use);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const auto options = parse_options({argv + 1, argv + argc});
        if (!options) {
            write_all(help);
            return 0;
        }
        std::error_code unreadable;
        if (!std::filesystem::is_directory(options->artifact, unreadable)) {
            throw UsageError(options->artifact + " is not a folder; give the folder of an artifact.");
        }
        return run(*options);
    } catch (const UsageError& error) {
        std::cerr << "classify: " << error.what() << " See --help.\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "classify: " << error.what() << "\n";
        return 1;
    }
}
