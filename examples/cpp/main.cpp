// Classify texts with a Ferry artifact, from the command line.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>

#include "classifier.hpp"
#include "json_mode.hpp"
#include "options.hpp"
#include "self_test.hpp"
#include "streams.hpp"
#include "text.hpp"

namespace {

std::string describe(const ferry::Decision& decision) {
    char probability[32];
    std::snprintf(probability, sizeof probability, "\t%.6f\n", decision.probability);
    return decision.label.value_or("") + probability;
}

std::string describe(const ferry::Answer& answer) { return describe(answer.decision); }

std::string describe(const ferry::Tags& tags) {
    std::string lines;
    for (const auto& [word, decision] : tags.words) {
        lines += word + "\t" + describe(decision);
    }
    return lines + "\n";
}

// Print the answers; `first` is the number of the first text, for messages.
template <typename Answers>
void write_answers(const ferry::Classifier& classifier, const Answers& answers, std::size_t first) {
    std::string lines;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        if (answers[i].dropped > 0) {
            std::cerr << "classify: text " << first + i << " is too long: the model read its first "
                      << classifier.tokenizer().max_pieces() << " pieces and not the " << answers[i].dropped
                      << " after them.\n";
        }
        lines += describe(answers[i]);
    }
    ferry::write_all(lines);
}

// Answer texts; the ones before one that is not valid UTF-8 are answered.
void answer_texts(const ferry::Classifier& classifier, ferry::Batch batch, std::size_t first) {
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
    const ferry::Batch valid = batch.first(count);
    if (classifier.contract().task == ferry::Task::token_classification) {
        write_answers(classifier, classifier.tag(valid), first);
    } else {
        write_answers(classifier, classifier.classify(valid), first);
    }
    if (failure) {
        throw *failure;
    }
}

int run_texts(const ferry::Classifier& classifier, const std::vector<std::string>& texts) {
    std::size_t number = 1;
    const auto use = [&](ferry::Batch batch) {
        answer_texts(classifier, batch, number);
        number += batch.size();
    };
    if (texts.empty()) {
        ferry::read_batches(use);
    } else {
        ferry::split_batches(texts, use);
    }
    return 0;
}

int run_requests(const ferry::Classifier& classifier) {
    bool failed = false;
    ferry::read_batches([&](ferry::Batch lines) {
        for (const std::string& line : lines) {
            const ferry::Reply reply = ferry::answer_request(classifier, line);
            failed = failed || reply.failed;
            ferry::write_all(reply.json + "\n");
        }
    });
    return failed ? 1 : 0;
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
    ferry::write_all("self-test: " + std::to_string(result.texts) + " texts and " + std::to_string(result.batches) +
                     " batches agree, largest difference " + difference);
    return 0;
}

int run(const ferry::Options& options) {
    const ferry::Classifier classifier(options.artifact, options.threads, {options.public_key, options.signature});
    if (options.self_test) {
        return run_self_test(classifier);
    }
    return options.json ? run_requests(classifier) : run_texts(classifier, options.texts);
}

}  // namespace

int main(int argc, char** argv) {
    ferry::keep_closed_streams_closed();
    try {
        const auto options = ferry::parse_options({argv + 1, argv + argc});
        if (!options) {
            ferry::write_all(ferry::help);
            return 0;
        }
        std::error_code unreadable;
        if (!std::filesystem::is_directory(options->artifact, unreadable)) {
            throw ferry::UsageError(options->artifact + " is not a folder; give the folder of an artifact.");
        }
        return run(*options);
    } catch (const ferry::UsageError& error) {
        std::cerr << "classify: " << error.what() << " See --help.\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "classify: " << error.what() << "\n";
        return 1;
    }
}
