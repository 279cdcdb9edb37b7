// The files of an artifact: manifest and hashes, and JSON read with readable errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tensor.hpp"

namespace ferry {

inline constexpr std::int64_t format = 3;

// The artifact is damaged, was changed, or can't be used by this program. A caller's mistake is std::invalid_argument.
class ArtifactError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

enum class Kind { object, list, string, string_or_null, whole_number, number };

// Look a value up and check its kind; whole numbers lie in 0 ... 2^31 - 1. `file` is named in the error.
const nlohmann::json& get(const nlohmann::json& document, const std::string& file, Kind kind,
                          const std::vector<std::string>& keys);
// Numbers in equally long lists, `rank` deep.
Tensor<double> get_tensor(const nlohmann::json& document, const std::string& file, Kind kind, const std::string& key,
                          std::size_t rank);
nlohmann::json parse_json(std::string_view bytes, const std::string& file);

std::string sha256_hex(std::string_view bytes);
// The bytes of a file. Throws ArtifactError; `name` is what it calls the file.
std::string read_file(const std::filesystem::path& path, const std::string& name);

// Which signature is required: none without a public key, a file in PEM.
struct Signed {
    std::filesystem::path public_key;
    // Empty: <name>-<version>.sig beside the folder.
    std::filesystem::path signature;
};

// A folder whose manifest agrees with SHA256SUMS. No other file is read before it is asked for.
class Artifact {
public:
    // Throws ArtifactError, also if the signature that is required is missing or wrong.
    explicit Artifact(std::filesystem::path folder, const Signed& required = {});

    // The bytes of a file, after their SHA-256 was found equal to the manifest's: use these, and never read it again.
    std::string read_checked(const std::string& name) const;
    const std::string& sha256(const std::string& name) const;

    std::string name() const { return manifest_.at("name"); }
    std::string version() const { return manifest_.at("version"); }
    const nlohmann::json& metadata() const { return manifest_.at("metadata"); }
    // A value of the manifest's metadata.
    const nlohmann::json& fact(Kind kind, std::vector<std::string> keys) const;
    // Refuse an artifact whose metadata asks for something that this program does not know.
    void require(const nlohmann::json& wanted, Kind kind, const std::vector<std::string>& keys) const;

private:
    std::string read(const std::string& name) const;

    std::filesystem::path folder_;
    nlohmann::json manifest_;
    std::map<std::string, std::string> files_;  // name -> SHA-256
};

}  // namespace ferry
