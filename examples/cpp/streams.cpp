#include "streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "classifier.hpp"

namespace ferry {
namespace {

constexpr std::size_t chunk_bytes = 65536;

}  // namespace

void keep_closed_streams_closed() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(stream, F_GETFD) == -1) {
            // The lowest free number is this stream's.
            ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
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

void split_batches(Batch texts, const std::function<void(Batch)>& use) {
    for (std::size_t start = 0; start < texts.size(); start += batch_size) {
        use(texts.subspan(start, std::min(batch_size, texts.size() - start)));
    }
}

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
    // A final newline ends a line and begins none.
    if (!begun.empty()) {
        use(Batch(&begun, 1));
    }
}

}  // namespace ferry
