// The signature of an artifact: an OpenSSF model-signing bundle, made with an elliptic-curve key pair.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace ferry {

// Check that a signature is by a key, a file in PEM which came another way than the artifact, and about the files of an
// artifact, each given with its SHA-256. Throws ArtifactError, which says why it is not.
void check_signature(const std::filesystem::path& file, const std::filesystem::path& public_key,
                     const std::map<std::string, std::string>& digests);

}  // namespace ferry
