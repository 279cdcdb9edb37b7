#include "signature.hpp"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact.hpp"

namespace ferry {
namespace {

using nlohmann::json;

const std::string media_type = "application/vnd.dev.sigstore.bundle.v0.3+json";
const std::string payload_type = "application/vnd.in-toto+json";
const std::string statement_type = "https://in-toto.io/Statement/v1";
const std::string predicate_type = "https://model_signing/signature/v1.0";

struct Free {
    void operator()(BIO* bio) const { BIO_free(bio); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Context = std::unique_ptr<EVP_MD_CTX, Free>;

std::string curve_of(const EVP_PKEY* key) {
    std::array<char, 32> name{};
    if (!key || EVP_PKEY_get_base_id(key) != EVP_PKEY_EC ||
        EVP_PKEY_get_group_name(key, name.data(), name.size(), nullptr) != 1) {
        return "";
    }
    return name.data();
}

// The hash that goes with a key's curve; nothing for another key.
const EVP_MD* hash_of(const EVP_PKEY* key) {
    const std::string curve = curve_of(key);
    if (curve == "prime256v1") {
        return EVP_sha256();
    }
    if (curve == "secp384r1") {
        return EVP_sha384();
    }
    return curve == "secp521r1" ? EVP_sha512() : nullptr;
}

Key load_key(const std::filesystem::path& file) {
    const std::string pem = read_file(file, file.string());
    const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
    Key key(bio ? PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr) : nullptr);
    if (!hash_of(key.get())) {
        throw ArtifactError(file.string() + " must be a public key in PEM, on the curve P-256, P-384 or P-521.");
    }
    return key;
}

// The SHA-256 of a key in PEM, by which a bundle names it.
std::string fingerprint_of(EVP_PKEY* key) {
    const Bio bio(BIO_new(BIO_s_mem()));
    char* pem = nullptr;
    if (!bio || PEM_write_bio_PUBKEY(bio.get(), key) != 1) {
        throw std::runtime_error("OpenSSL can't write a key.");
    }
    const long size = BIO_get_mem_data(bio.get(), &pem);
    return sha256_hex({pem, static_cast<std::size_t>(size)});
}

std::string decode_base64(const std::string& text, const std::string& what) {
    constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t letters = std::min(text.find_first_not_of(alphabet), text.size());
    const std::size_t padding = text.size() - letters;
    std::string bytes(text.size() / 4 * 3, '\0');
    if (text.size() % 4 != 0 || padding > 2 || text.find_first_not_of('=', letters) != text.npos ||
        EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                        reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size())) < 0) {
        throw ArtifactError(what + " must be base64.");
    }
    bytes.resize(bytes.size() - padding);
    return bytes;
}

bool is_signed_by(EVP_PKEY* key, const std::string& payload, const std::string& signature) {
    // DSSE's pre-authentication encoding.
    const std::string message = "DSSEv1 " + std::to_string(payload_type.size()) + " " + payload_type + " " +
                                std::to_string(payload.size()) + " " + payload;
    const auto bytes = [](const std::string& text) { return reinterpret_cast<const unsigned char*>(text.data()); };
    const Context context(EVP_MD_CTX_new());
    return context && EVP_DigestVerifyInit(context.get(), nullptr, hash_of(key), nullptr, key) == 1 &&
           EVP_DigestVerify(context.get(), bytes(signature), signature.size(), bytes(message), message.size()) == 1;
}

void require(const json& document, const std::string& file, const std::string& wanted,
             const std::vector<std::string>& keys) {
    const std::string got = get(document, file, Kind::string, keys);
    if (got != wanted) {
        std::string path = keys.front();
        for (std::size_t i = 1; i < keys.size(); ++i) {
            path += "." + keys[i];
        }
        throw ArtifactError(file + ": " + path + " must be " + wanted + "; got " + json(got).dump(-1, ' ', true) + ".");
    }
}

// The SHA-256 of each file that a signed statement is about.
std::map<std::string, std::string> read_statement(const std::string& payload, const std::string& file) {
    const json statement = parse_json(payload, file);
    require(statement, file, statement_type, {"_type"});
    require(statement, file, predicate_type, {"predicateType"});
    require(statement, file, "files", {"predicate", "serialization", "method"});
    std::map<std::string, std::string> files;
    for (const json& resource : get(statement, file, Kind::list, {"predicate", "resources"})) {
        require(resource, file, "sha256", {"algorithm"});
        const std::string name = get(resource, file, Kind::string, {"name"});
        files[name] = get(resource, file, Kind::string, {"digest"});
    }
    return files;
}

void compare(const std::map<std::string, std::string>& stated, const std::map<std::string, std::string>& digests,
             const std::string& file) {
    std::set<std::string> names;
    for (const auto* files : {&stated, &digests}) {
        for (const auto& [name, sha256] : *files) {
            names.insert(name);
        }
    }
    const auto find = [](const auto& files, const std::string& name) {
        const auto found = files.find(name);
        return found == files.end() ? std::string() : found->second;
    };
    for (const std::string& name : names) {
        if (find(stated, name) != find(digests, name)) {
            throw ArtifactError(file + " is about other files than these, of which " + json(name).dump(-1, ' ', true) +
                                " is the first: it was made for another artifact, or this one was changed.");
        }
    }
}

}  // namespace

void check_signature(const std::filesystem::path& file, const std::filesystem::path& public_key,
                     const std::map<std::string, std::string>& digests) {
    const Key key = load_key(public_key);
    const std::string name = file.string();
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(file, unreadable)) {
        throw ArtifactError("there is no signature " + name + ". Fetch it with the artifact.");
    }
    const json document = parse_json(read_file(file, name), name);
    require(document, name, media_type, {"mediaType"});
    require(document, name, payload_type, {"dsseEnvelope", "payloadType"});
    const std::string fingerprint =
        get(document, name, Kind::string, {"verificationMaterial", "publicKey", "hint"});
    const json& signatures = get(document, name, Kind::list, {"dsseEnvelope", "signatures"});
    if (signatures.size() != 1) {
        throw ArtifactError(name + ": dsseEnvelope.signatures must hold one signature; got " +
                            std::to_string(signatures.size()) + ".");
    }
    const std::string signature = decode_base64(get(signatures.front(), name, Kind::string, {"sig"}), name + ": sig");
    const std::string payload = decode_base64(get(document, name, Kind::string, {"dsseEnvelope", "payload"}),
                                              name + ": dsseEnvelope.payload");
    if (fingerprint != fingerprint_of(key.get())) {
        throw ArtifactError(name + " was made with another key than " + public_key.string() + ".");
    }
    if (!is_signed_by(key.get(), payload, signature)) {
        throw ArtifactError(name + " is not a signature by " + public_key.string() + ": it was forged or damaged.");
    }
    compare(read_statement(payload, name), digests, name);
}

}  // namespace ferry
