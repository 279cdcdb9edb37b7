#include "artifact.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "signature.hpp"

namespace ferry {
namespace {

using nlohmann::json;

const std::string manifest_file = "manifest.json";
const std::string sums_file = "SHA256SUMS";

bool is(const json& value, Kind kind) {
    switch (kind) {
        case Kind::object:
            return value.is_object();
        case Kind::list:
            return value.is_array();
        case Kind::string:
            return value.is_string();
        case Kind::string_or_null:
            return value.is_string() || value.is_null();
        case Kind::whole_number:
            return value.is_number_unsigned() && value.get<std::uint64_t>() < (std::uint64_t{1} << 31);
        case Kind::number:
            return value.is_number();
    }
    return false;
}

std::string name_of(Kind kind) {
    switch (kind) {
        case Kind::object:
            return "an object";
        case Kind::list:
            return "a list";
        case Kind::string:
            return "a string";
        case Kind::string_or_null:
            return "a string or null";
        case Kind::whole_number:
            return "a whole number";
        case Kind::number:
            return "a number";
    }
    return "";
}

// Append the numbers of `value`, which lies `axis` lists deep; false unless it has the tensor's shape.
bool fill(Tensor<double>& tensor, const json& value, Kind kind, std::size_t axis) {
    if (axis == tensor.shape.size()) {
        if (!is(value, kind)) {
            return false;
        }
        tensor.values.push_back(value);
        return true;
    }
    return value.is_array() && static_cast<std::int64_t>(value.size()) == tensor.shape[axis] &&
           std::ranges::all_of(value, [&](const json& inner) { return fill(tensor, inner, kind, axis + 1); });
}

std::string join(const std::vector<std::string>& keys, std::size_t count) {
    std::string path = keys.front();
    for (std::size_t i = 1; i < count; ++i) {
        path += "." + keys[i];
    }
    return path;
}

// A plain name can't lead out of the folder, and can't break a line of SHA256SUMS.
bool is_plain_name(const std::string& name) {
    const auto is_letter_or_digit = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    return !name.empty() && is_letter_or_digit(name.front()) && name != manifest_file && name != sums_file &&
           std::ranges::all_of(name, [&](char c) { return is_letter_or_digit(c) || c == '.' || c == '-'; });
}

bool is_sha256(const std::string& text) {
    return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::map<std::string, std::string> read_files(const json& manifest) {
    const auto got = get(manifest, manifest_file, Kind::whole_number, {"format"}).get<std::int64_t>();
    if (got != format) {
        throw ArtifactError(manifest_file + " must have format " + std::to_string(format) + "; got " +
                            std::to_string(got) + ". Use a newer program.");
    }
    std::map<std::string, std::string> files;
    for (const auto& item : get(manifest, manifest_file, Kind::object, {"files"}).items()) {
        const std::string& name = item.key();
        if (!is_plain_name(name)) {
            throw ArtifactError(manifest_file + ": files must hold plain file names; got " +
                                json(name).dump(-1, ' ', true) + ".");
        }
        files[name] = get(manifest, manifest_file, Kind::string, {"files", name, "sha256"});
        if (!is_sha256(files[name])) {
            throw ArtifactError(manifest_file + ": files." + name +
                                ".sha256 must be 64 lower-case hexadecimal digits.");
        }
    }
    return files;
}

std::string sha256sums(std::map<std::string, std::string> files, std::string_view manifest) {
    files[manifest_file] = sha256_hex(manifest);
    std::string lines;
    for (const auto& [name, sha256] : files) {
        lines += sha256 + "  " + name + "\n";
    }
    return lines;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
        throw std::runtime_error("OpenSSL can't compute a SHA-256.");
    }
    std::string hex;
    for (unsigned int i = 0; i < size; ++i) {
        hex += "0123456789abcdef"[digest[i] >> 4];
        hex += "0123456789abcdef"[digest[i] & 15];
    }
    return hex;
}

std::string read_file(const std::filesystem::path& path, const std::string& name) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::string bytes;
    if (file) {
        bytes.resize(static_cast<std::size_t>(file.tellg()));
        file.seekg(0);
        file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    if (!file) {
        throw ArtifactError(name + " can't be read: " + std::strerror(errno) + ".");
    }
    return bytes;
}

const json& get(const json& document, const std::string& file, Kind kind, const std::vector<std::string>& keys) {
    const json* value = &document;
    for (std::size_t depth = 0; depth < keys.size(); ++depth) {
        if (!value->is_object() || !value->contains(keys[depth])) {
            throw ArtifactError(file + ": " + join(keys, depth + 1) + " is missing.");
        }
        value = &value->at(keys[depth]);
    }
    if (!is(*value, kind)) {
        throw ArtifactError(file + ": " + join(keys, keys.size()) + " must be " + name_of(kind) + ".");
    }
    return *value;
}

Tensor<double> get_tensor(const json& document, const std::string& file, Kind kind, const std::string& key,
                          std::size_t rank) {
    const json& lists = get(document, file, Kind::list, {key});
    Tensor<double> tensor;
    const json* first = &lists;
    while (tensor.shape.size() < rank) {
        const bool filled = first && first->is_array() && !first->empty();
        tensor.shape.push_back(filled ? static_cast<std::int64_t>(first->size()) : 0);
        first = filled ? &first->front() : nullptr;
    }
    if (!fill(tensor, lists, kind, 0)) {
        throw ArtifactError(file + ": " + key + " must hold numbers in equally long lists, " + std::to_string(rank) +
                            " deep.");
    }
    return tensor;
}

json parse_json(std::string_view bytes, const std::string& file) {
    json document = json::parse(bytes, nullptr, false);
    // The library overlooks a byte-order mark and what follows a NUL; JSON allows neither.
    if (document.is_discarded() || bytes.starts_with("\xef\xbb\xbf") || bytes.find('\0') != bytes.npos) {
        throw ArtifactError(file + " is not valid JSON. Fetch the artifact again.");
    }
    return document;
}

Artifact::Artifact(std::filesystem::path folder, const Signed& required) : folder_(std::move(folder)) {
    const std::string bytes = read(manifest_file);
    manifest_ = parse_json(bytes, manifest_file);
    files_ = read_files(manifest_);
    const std::string sums = sha256sums(files_, bytes);
    if (read(sums_file) != sums) {
        throw ArtifactError(sums_file + " does not agree with " + manifest_file +
                            ": one was changed. Fetch both again.");
    }
    get(manifest_, manifest_file, Kind::string, {"name"});
    get(manifest_, manifest_file, Kind::string, {"version"});
    get(manifest_, manifest_file, Kind::object, {"metadata"});
    if (!required.public_key.empty()) {
        auto digests = files_;
        digests[manifest_file] = sha256_hex(bytes);
        digests[sums_file] = sha256_hex(sums);
        const auto beside = std::filesystem::canonical(folder_).parent_path() / (name() + "-" + version() + ".sig");
        check_signature(required.signature.empty() ? beside : required.signature, required.public_key, digests);
    }
}

std::string Artifact::read(const std::string& name) const {
    const std::filesystem::path path = folder_ / name;
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(path, unreadable)) {
        throw ArtifactError(name + " is missing from " + folder_.string() + ". Give the folder of a whole artifact.");
    }
    return read_file(path, name);
}

std::string Artifact::read_checked(const std::string& name) const {
    const std::string& wanted = sha256(name);
    std::string bytes = read(name);
    if (sha256_hex(bytes) != wanted) {
        throw ArtifactError(name + " was changed: its SHA-256 is not the manifest's. Fetch the artifact again.");
    }
    return bytes;
}

const std::string& Artifact::sha256(const std::string& name) const {
    const auto file = files_.find(name);
    if (file == files_.end()) {
        throw ArtifactError(manifest_file + ": files." + name + " is missing.");
    }
    return file->second;
}

const json& Artifact::fact(Kind kind, std::vector<std::string> keys) const {
    keys.insert(keys.begin(), "metadata");
    return get(manifest_, manifest_file, kind, keys);
}

void Artifact::require(const json& wanted, Kind kind, const std::vector<std::string>& keys) const {
    const auto as_text = [](const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
    const json& got = fact(kind, keys);
    if (got != wanted) {
        throw ArtifactError(manifest_file + ": metadata." + join(keys, keys.size()) + " must be " + as_text(wanted) +
                            "; got " + as_text(got) + ". Use a program that knows it.");
    }
}

}  // namespace ferry
