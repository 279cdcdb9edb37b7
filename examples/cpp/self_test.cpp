#include "self_test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

namespace ferry {
namespace {

using nlohmann::json;

const std::string file = "goldens.json";

std::string number(const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

Tensor<std::int64_t> get_whole_matrix(const json& golden, const std::string& key) {
    const Tensor<double> tensor = get_tensor(golden, file, Kind::whole_number, key, 2);
    return {tensor.shape, {tensor.values.begin(), tensor.values.end()}};
}

std::string told(const std::optional<std::string>& label) { return label ? "the label " + *label : "no label"; }

class Replay {
public:
    explicit Replay(const Classifier& classifier) : classifier_(classifier) {}

    SelfTest run() {
        const json goldens = parse_json(classifier_.artifact().read_checked(file), file);
        const auto got = get(goldens, file, Kind::whole_number, {"format"}).get<std::int64_t>();
        if (got != format) {
            throw ArtifactError(file + " must have format " + std::to_string(format) + "; got " + std::to_string(got) +
                                ". Use a newer program.");
        }
        logits_tolerance_ = get(goldens, file, Kind::number, {"tolerance", "logits"});
        probability_tolerance_ = get(goldens, file, Kind::number, {"tolerance", "probabilities"});
        const json& texts = get(goldens, file, Kind::list, {"texts"});
        const json& batches = get(goldens, file, Kind::list, {"batches"});
        if (texts.empty() || batches.empty()) {
            throw ArtifactError(file + " must hold texts and batches; got " + std::to_string(texts.size()) + " and " +
                                std::to_string(batches.size()) + ".");
        }
        for (std::size_t i = 0; i < texts.size(); ++i) {
            replay_text(texts[i], "text " + std::to_string(i + 1));
        }
        for (std::size_t i = 0; i < batches.size(); ++i) {
            replay_batch(batches[i], "batch " + std::to_string(i + 1));
        }
        result_.texts = texts.size();
        result_.batches = batches.size();
        return std::move(result_);
    }

private:
    void fail(const std::string& sentence) { result_.failures.push_back(sentence); }

    void replay_text(const json& golden, const std::string& what) {
        const std::string text = get(golden, file, Kind::string, {"text"});
        const Encoding encoding = classifier_.encode(text);
        const Tensor<double> ids = get_tensor(golden, file, Kind::whole_number, "input_ids", 1);
        if (!std::ranges::equal(encoding.ids, ids.values) ||
            encoding.dropped != get(golden, file, Kind::whole_number, {"dropped"})) {
            fail(what + ": the tokenizer gives other ids.");
            return;
        }
        const Tensor<float> logits = classifier_.logits(std::span(&encoding, 1));
        // The golden is one text, the answer a batch of one.
        Tensor<double> wanted = get_tensor(golden, file, Kind::number, "logits", logits.shape.size() - 1);
        wanted.shape.insert(wanted.shape.begin(), 1);
        compare(logits, wanted, what);
        if (classifier_.contract().task == Task::token_classification) {
            compare_words(classifier_.decide_words(encoding, logits, 0), get(golden, file, Kind::list, {"words"}), what);
        } else {
            compare(classifier_.decide(logits.row(0)), golden, what);
        }
    }

    void replay_batch(const json& golden, const std::string& what) {
        const Tensor<std::int64_t> input_ids = get_whole_matrix(golden, "input_ids");
        const Tensor<std::int64_t> attention_mask = get_whole_matrix(golden, "attention_mask");
        Tensor<float> logits;
        try {
            logits = classifier_.logits(input_ids, attention_mask);
        } catch (const std::invalid_argument& error) {
            fail(what + ": " + error.what());
            return;
        }
        compare(logits, get_tensor(golden, file, Kind::number, "logits", logits.shape.size()), what);
    }

    void compare_words(const std::vector<Word>& got, const json& wanted, const std::string& what) {
        const auto same = [](const Word& word, const json& golden) {
            return word.word == get(golden, file, Kind::string, {"word"}).get<std::string>();
        };
        if (!std::ranges::equal(got, wanted, same)) {
            fail(what + ": the text has other words.");
            return;
        }
        for (std::size_t i = 0; i < got.size(); ++i) {
            compare(got[i].decision, wanted[i], what + ", word " + std::to_string(i + 1));
        }
    }

    void compare(const Decision& got, const json& golden, const std::string& what) {
        const json& name = get(golden, file, Kind::string_or_null, {"label"});
        const auto label = name.is_null() ? std::nullopt : std::optional(name.get<std::string>());
        const double probability = get(golden, file, Kind::number, {"probability"});
        if (got.label != label) {
            fail(what + ": wanted " + told(label) + "; got " + told(got.label) + ".");
        } else if (!(std::abs(got.probability - probability) <= probability_tolerance_)) {
            fail(what + ": wanted the probability " + number("%.6f", probability) + "; got " +
                 number("%.6f", got.probability) + ".");
        }
    }

    void compare(const Tensor<float>& got, const Tensor<double>& wanted, const std::string& what) {
        if (got.shape != wanted.shape) {
            fail(what + ": wanted logits of shape " + wanted.shape_text() + "; got " + got.shape_text() + ".");
            return;
        }
        double largest = 0;
        for (std::size_t i = 0; i < got.values.size(); ++i) {
            largest = std::max(largest, std::abs(static_cast<double>(got.values[i]) - wanted.values[i]));
        }
        result_.largest_difference = std::max(result_.largest_difference, largest);
        if (!(largest <= logits_tolerance_)) {
            fail(what + ": logits differ by " + number("%.2e", largest) + "; " + number("%.2e", logits_tolerance_) +
                 " is allowed.");
        }
    }

    const Classifier& classifier_;
    double logits_tolerance_ = 0;
    double probability_tolerance_ = 0;
    SelfTest result_;
};

}  // namespace

SelfTest self_test(const Classifier& classifier) { return Replay(classifier).run(); }

}  // namespace ferry
