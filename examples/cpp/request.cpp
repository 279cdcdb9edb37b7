#include "request.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "text.hpp"

namespace ferry {
namespace {

using nlohmann::json;

constexpr int max_depth = 64;

// The code unit of an escape \uXXXX that begins at `offset`, if there is one.
std::optional<unsigned> escaped_unit(std::string_view line, std::size_t offset) {
    const std::string_view escape = line.substr(std::min(offset, line.size()), 6);
    if (escape.size() != 6 || !escape.starts_with("\\u") ||
        escape.find_first_not_of("0123456789abcdefABCDEF", 2) != escape.npos) {
        return std::nullopt;
    }
    return std::stoul(std::string(escape.substr(2)), nullptr, 16);
}

// Check an escape inside a string, and return its length: of a surrogate pair, both halves'.
std::size_t check_escape(std::string_view line, std::size_t offset) {
    const auto unit = escaped_unit(line, offset);
    if (!unit || *unit < 0xd800 || *unit > 0xdfff) {
        return 2;
    }
    const auto next = escaped_unit(line, offset + 6);
    if (*unit > 0xdbff || !next || *next < 0xdc00 || *next > 0xdfff) {
        char code[5];
        std::snprintf(code, sizeof code, "%04X", *unit);
        throw std::invalid_argument("the line must escape surrogates in pairs; got the lone surrogate U+" +
                                    std::string(code) + " at offset " + std::to_string(offset) +
                                    ". Escape the whole character, or write it in UTF-8.");
    }
    return 12;
}

// What parsers treat differently, or not at all, is refused before one is asked.
void check_line(std::string_view line) {
    check_utf8(line, "the line");
    int depth = 0;
    bool in_string = false;
    for (std::size_t offset = 0; offset < line.size(); ++offset) {
        const char c = line[offset];
        if (in_string) {
            if (c == '\\') {
                offset += check_escape(line, offset) - 1;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max_depth) {
                throw std::invalid_argument("the line must nest at most " + std::to_string(max_depth) +
                                            " deep; got more. Write a flat request.");
            }
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
}

json parse(const std::string& line) {
    std::vector<std::vector<std::string>> keys_of_open_objects;
    std::optional<std::string> twice;
    const auto watch = [&](int, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::object_start) {
            keys_of_open_objects.emplace_back();
        } else if (event == json::parse_event_t::key) {
            keys_of_open_objects.back().push_back(parsed);
        } else if (event == json::parse_event_t::object_end) {
            std::vector<std::string> keys = std::move(keys_of_open_objects.back());
            keys_of_open_objects.pop_back();
            std::ranges::sort(keys);
            const auto found = std::ranges::adjacent_find(keys);
            if (found != keys.end() && !twice) {
                twice = *found;
            }
        }
        return true;
    };
    const json document = json::parse(line, watch, false);
    // The library overlooks a byte-order mark and what follows a NUL; JSON allows neither.
    if (document.is_discarded() || line.starts_with("\xef\xbb\xbf") || line.find('\0') != line.npos) {
        throw std::invalid_argument(
            "the line must be valid JSON, its numbers within a double's range; got something else. "
            "Write one JSON object a line.");
    }
    if (twice) {
        throw std::invalid_argument("the line must give each key once; got " + json(*twice).dump(-1, ' ', true) +
                                    " twice. Remove one.");
    }
    return document;
}

std::string kind_of(const json& value) {
    switch (value.type()) {
        case json::value_t::null:
            return "null";
        case json::value_t::boolean:
            return "true or false";
        case json::value_t::string:
            return "a string";
        case json::value_t::array:
            return "a list";
        case json::value_t::object:
            return "an object";
        default:
            return "a number";
    }
}

std::string list_keys(const json& request) {
    std::string list;
    for (const auto& item : request.items()) {
        list += (list.empty() ? "" : ", ") + json(item.key()).dump(-1, ' ', true);
    }
    return list.empty() ? "none" : list;
}

std::int64_t read_whole_number(const json& value, const std::string& key, std::size_t row, std::size_t column) {
    constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > largest)) {
        const std::string kind = value.is_number() ? "another number" : kind_of(value);
        throw std::invalid_argument(key + " must hold whole numbers of 64 bits, without fraction or exponent; got " +
                                    kind + " at row " + std::to_string(row) + ", column " + std::to_string(column) +
                                    ". Write ids as the tokenizer gives them.");
    }
    return value;
}

Tensor<std::int64_t> read_matrix(const json& request, const std::string& key) {
    const json& rows = request.at(key);
    if (!rows.is_array()) {
        throw std::invalid_argument(key + " must be a list of rows; got " + kind_of(rows) +
                                    ". Write [[...]], a row for each text.");
    }
    Tensor<std::int64_t> matrix{{static_cast<std::int64_t>(rows.size()), 0}, {}};
    for (std::size_t row = 0; row < rows.size(); ++row) {
        if (!rows[row].is_array()) {
            throw std::invalid_argument(key + " must be a list of rows; got " + kind_of(rows[row]) + " at row " +
                                        std::to_string(row) + ". Write [[...]], a row for each text.");
        }
        if (rows[row].size() != rows[0].size()) {
            throw std::invalid_argument(key + " must have equally long rows; got " + std::to_string(rows[0].size()) +
                                        " values in row 0 and " + std::to_string(rows[row].size()) + " in row " +
                                        std::to_string(row) + ". Pad the shorter ones.");
        }
        for (std::size_t column = 0; column < rows[row].size(); ++column) {
            matrix.values.push_back(read_whole_number(rows[row][column], key, row, column));
        }
        matrix.shape[1] = static_cast<std::int64_t>(rows[0].size());
    }
    return matrix;
}

}  // namespace

Request parse_request(const std::string& line) {
    check_line(line);
    const json request = parse(line);
    if (!request.is_object()) {
        throw std::invalid_argument("the line must be a JSON object; got " + kind_of(request) +
                                    R"(. Write {"text": "..."}.)");
    }
    if (request.size() == 1 && request.contains("text")) {
        if (!request.at("text").is_string()) {
            throw std::invalid_argument("text must be a string; got " + kind_of(request.at("text")) +
                                        ". Send a request for each text.");
        }
        return TextRequest{request.at("text")};
    }
    if (request.size() == 2 && request.contains("input_ids") && request.contains("attention_mask")) {
        Tensor<std::int64_t> input_ids = read_matrix(request, "input_ids");
        return IdsRequest{std::move(input_ids), read_matrix(request, "attention_mask")};
    }
    throw std::invalid_argument(
        "the request must have the key text, or the keys input_ids and attention_mask, and no other; got " +
        list_keys(request) + ". Name them so.");
}

}  // namespace ferry
