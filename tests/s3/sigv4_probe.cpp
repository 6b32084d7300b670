// Signs what it reads: one JSON request per line in, one JSON signature per line out.
#include "store/s3/sigv4.hpp"

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

wisp::NamedValues pairs_of(const nlohmann::json& list) {
    wisp::NamedValues pairs;
    for (const auto& pair : list) {
        pairs.emplace_back(pair.at(0).get<std::string>(), pair.at(1).get<std::string>());
    }
    return pairs;
}

}  // namespace

int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        const auto json = nlohmann::json::parse(line);
        const auto text = [&](const char* name) { return json.at(name).get<std::string>(); };
        const wisp::SignableRequest request{
            text("method"), wisp::percent_encoded(text("path"), true), pairs_of(json.at("query")),
            pairs_of(json.at("headers")), text("payload_sha256")};
        const wisp::AwsKeys keys{text("access_key_id"), text("secret_access_key"), ""};
        const wisp::SigningScope scope{text("region"), text("service"), text("amz_date")};
        const wisp::RequestSignature signature = wisp::sign_v4(request, keys, scope);
        std::cout << nlohmann::json{{"canonical_request", signature.canonical_request},
                                    {"string_to_sign", signature.string_to_sign},
                                    {"authorization", signature.authorization}}
                  << '\n';
    }
}
