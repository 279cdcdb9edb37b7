// Does one thing that a sanitizer must find, after a classifier was used and freed as a service would.
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "classifier.hpp"

namespace {

// Keeps the compiler from working the faults out, and away.
volatile std::size_t three = 3;

void leak() {
    auto* volatile lost = new std::string(100, 'x');
    lost = nullptr;
    static_cast<void>(lost);
}

void read_past_the_end() {
    const std::vector<int> two(2, 1);
    std::cout << two.data()[three] << "\n";
}

void read_after_free() {
    const auto* freed = new int(1);
    delete freed;
    std::cout << *const_cast<const volatile int*>(freed) << "\n";
}

void overflow() { std::cout << std::numeric_limits<int>::max() + static_cast<int>(three) << "\n"; }

}  // namespace

int main(int, char** argv) {
    const std::string fault = argv[2];
    {
        const ferry::Classifier classifier(argv[1]);
        const std::vector<std::string> texts{"a text"};
        classifier.classify(texts);
    }
    if (fault == "leak") {
        leak();
    } else if (fault == "read past the end") {
        read_past_the_end();
    } else if (fault == "read after free") {
        read_after_free();
    } else if (fault == "overflow") {
        overflow();
    }
}
