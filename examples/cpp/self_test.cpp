#include "self_test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
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

Matrix<std::int64_t> get_whole_matrix(const json& golden, const std::string& key) {
    const Matrix<double> matrix = get_matrix(golden, file, Kind::whole_number, key);
    return {matrix.rows, matrix.columns, {matrix.values.begin(), matrix.values.end()}};
}

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
        const Encoding encoding = classifier_.tokenizer().encode(text);
        const std::vector<double> ids = get_numbers(golden, file, Kind::whole_number, "input_ids");
        if (!std::ranges::equal(encoding.ids, ids) ||
            encoding.dropped != get(golden, file, Kind::whole_number, {"dropped"})) {
            fail(what + ": the tokenizer gives other ids.");
            return;
        }
        const Matrix<float> logits = classifier_.logits(std::span(&encoding, 1));
        const std::vector<double> wanted = get_numbers(golden, file, Kind::number, "logits");
        compare(logits, {1, static_cast<std::int64_t>(wanted.size()), wanted}, what);
        const Answer answer = classifier_.answer(logits.row(0), encoding.dropped);
        const std::string label = get(golden, file, Kind::string, {"label"});
        const double probability = get(golden, file, Kind::number, {"probability"});
        if (answer.label != label) {
            fail(what + ": wanted the label " + label + "; got " + answer.label + ".");
        } else if (!(std::abs(answer.probability - probability) <= probability_tolerance_)) {
            fail(what + ": wanted the probability " + number("%.6f", probability) + "; got " +
                 number("%.6f", answer.probability) + ".");
        }
    }

    void replay_batch(const json& golden, const std::string& what) {
        const Matrix<std::int64_t> input_ids = get_whole_matrix(golden, "input_ids");
        const Matrix<std::int64_t> attention_mask = get_whole_matrix(golden, "attention_mask");
        Matrix<float> logits;
        try {
            logits = classifier_.logits(input_ids, attention_mask);
        } catch (const std::invalid_argument& error) {
            fail(what + ": " + error.what());
            return;
        }
        compare(logits, get_matrix(golden, file, Kind::number, "logits"), what);
    }

    void compare(const Matrix<float>& got, const Matrix<double>& wanted, const std::string& what) {
        if (got.rows != wanted.rows || got.columns != wanted.columns) {
            fail(what + ": wanted logits of shape " + wanted.shape() + "; got " + got.shape() + ".");
            return;
        }
        double largest = 0;
        for (std::size_t i = 0; i < got.values.size(); ++i) {
            const double difference = std::abs(static_cast<double>(got.values[i]) - wanted.values[i]);
            // NaN is larger than nothing and smaller than nothing, so the comparisons are ones that it fails.
            if (!(difference <= largest)) {
                largest = difference;
            }
        }
        if (!(largest <= result_.largest_difference)) {
            result_.largest_difference = largest;
        }
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
