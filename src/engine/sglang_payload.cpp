#include "engine/sglang_payload.hpp"

#include <openssl/evp.h>

#include <cstdint>
#include <string_view>

namespace wisp {
namespace {

constexpr std::size_t kLongestRecord = 64 * 1024;

std::string base64(std::string_view bytes) {
    std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // OpenSSL closes it with a zero
    const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                       reinterpret_cast<const unsigned char*>(bytes.data()),
                                       static_cast<int>(bytes.size()));
    text.resize(static_cast<std::size_t>(length));
    return text;
}

}  // namespace

std::string sglang_payload(const nlohmann::json& record) {
    using namespace std::string_literals;
    const std::string text = record.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    const std::string name = kSglangName;
    std::string pickle = "\x80\x02]"s;  // protocol 2; an empty list
    pickle += 'X';                      // a string: length, then UTF-8
    pickle += static_cast<char>(name.size());
    pickle += "\0\0\0"s + name;
    pickle += "ctorch\nByteTensor\n";                // the only thing that is named
    pickle += "](";                                  // its argument: a list of
    for (const char c : text) (pickle += 'K') += c;  // one-byte integers
    pickle += "e\x85R";                              // end of list, 1-tuple, call
    pickle += "\x86"s + "a.";                        // (name, tensor) into the list; end
    return base64(pickle);
}

std::optional<nlohmann::json> sglang_record(const nlohmann::json& parameter) {
    if (!parameter.is_array() || parameter.size() > kLongestRecord) return std::nullopt;
    std::string text;
    for (const auto& number : parameter) {
        if (!number.is_number()) return std::nullopt;
        const double value = number.get<double>();
        if (!(value >= 0 && value <= 255)) return std::nullopt;
        text += static_cast<char>(static_cast<std::uint8_t>(value));
    }
    auto record = nlohmann::json::parse(text, nullptr, false);
    if (!record.is_object()) return std::nullopt;
    return record;
}

}  // namespace wisp
