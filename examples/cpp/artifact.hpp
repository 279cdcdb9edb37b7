// The files of an artifact: manifest and hashes, and JSON read with readable errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

inline constexpr std::int64_t format = 1;

// The artifact is damaged, was changed, or can't be used by this program. A caller's mistake is std::invalid_argument.
class ArtifactError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Row-major; `values` holds rows * columns of them.
template <typename Value>
struct Matrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<Value> values;

    std::span<const Value> row(std::int64_t index) const {
        return std::span(values).subspan(static_cast<std::size_t>(index * columns), static_cast<std::size_t>(columns));
    }
    std::string shape() const {
        return std::string("(").append(std::to_string(rows)).append(", ").append(std::to_string(columns)).append(")");
    }
};

enum class Kind { object, list, string, whole_number, number };

// Look a value up and check its kind; whole numbers lie in 0 ... 2^31 - 1. `file` is named in the error.
const nlohmann::json& get(const nlohmann::json& document, const std::string& file, Kind kind,
                          const std::vector<std::string>& keys);
// A list of numbers.
std::vector<double> get_numbers(const nlohmann::json& document, const std::string& file, Kind kind,
                                const std::string& key);
// A list of equally long lists of numbers.
Matrix<double> get_matrix(const nlohmann::json& document, const std::string& file, Kind kind, const std::string& key);
nlohmann::json parse_json(std::string_view bytes, const std::string& file);

// A folder whose manifest agrees with SHA256SUMS. No other file is read before it is asked for.
class Artifact {
public:
    explicit Artifact(std::filesystem::path folder);

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
