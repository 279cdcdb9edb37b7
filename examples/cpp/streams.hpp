// Standard input as lines, and standard output.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ferry {

using Batch = std::span<const std::string>;

// Give the standard streams that are closed a file that can't be used either. Otherwise the next file opened, the
// model say, would take their place. Call it before any file is opened.
void keep_closed_streams_closed();

// Throws std::runtime_error if it can't be written.
void write_all(std::string_view text);

// The lines of standard input as they arrive, at most batch_size at a time. They are never held back until a batch is
// full, and memory holds no more than a chunk and the line that it ends in.
void read_batches(const std::function<void(Batch)>& use);

void split_batches(Batch texts, const std::function<void(Batch)>& use);

}  // namespace ferry
