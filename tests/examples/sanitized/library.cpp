// The library as a service uses it: from several threads, and with batches of its own making, wrong ones among them.
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "classifier.hpp"

namespace {

using Ids = ferry::Tensor<std::int64_t>;

void print_refusal(const ferry::Classifier& classifier, const Ids& input_ids, const Ids& attention_mask) {
    try {
        classifier.logits(input_ids, attention_mask);
        std::cout << "accepted\n";
    } catch (const std::invalid_argument& error) {
        std::cout << error.what() << "\n";
    }
}

}  // namespace

int main(int, char** argv) {
    const ferry::Classifier classifier(argv[1]);
    const Ids mask{{1, 3}, {1, 1, 1}};
    print_refusal(classifier, {{1, 3}, {2, 5, 3}}, mask);
    print_refusal(classifier, {{3}, {2, 5, 3}}, {{3}, {1, 1, 1}});
    print_refusal(classifier, {{}, {2}}, mask);
    print_refusal(classifier, {{1, 3, 1}, {2, 5, 3}}, mask);
    print_refusal(classifier, {{1, 3}, {2, 5}}, mask);
    print_refusal(classifier, {{-1, -3}, {2, 5, 3}}, mask);
    print_refusal(classifier, {{std::int64_t{1} << 40, std::int64_t{1} << 40}, {}}, mask);
    print_refusal(classifier, {{1, 3}, {2, 5, 3}}, {{1, 3}, {1, 1}});
    print_refusal(classifier, {{1, 3}, {2, 5, 3}}, {{1, 2}, {1, 1}});
    for (const char* const text : {"\xff", "ab\xc3"}) {
        try {
            classifier.classify(std::vector<std::string>{text});
        } catch (const std::invalid_argument& error) {
            std::cout << error.what() << "\n";
        }
    }
    try {
        classifier.tag({});
    } catch (const std::invalid_argument& error) {
        std::cout << error.what() << "\n";
    }
    std::cout << classifier.classify({}).size() << "\n";

    const std::vector<std::string> texts(70, "Licensed under the MIT licence");
    std::vector<std::vector<ferry::Answer>> answers(4);
    std::vector<std::thread> threads;
    for (auto& own : answers) {
        threads.emplace_back([&] { own = classifier.classify(texts); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    bool same = true;
    for (const auto& own : answers) {
        for (const ferry::Answer& answer : own) {
            same = same && answer.decision.probability == answers[0][0].decision.probability;
        }
    }
    std::cout << answers[3].size() << (same ? " same\n" : " different\n");
}
