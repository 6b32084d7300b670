// Any text as a file of AWS profiles, and any answers from the services that hand out keys. The
// first letter of the input says which: p, then the name of a section on its first line; or c, i,
// w.
#include <map>

#include "scripted_http.hpp"
#include "store/s3/aws_profile.hpp"
#include "store/s3/credentials.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

void check_profile(std::string_view text) {
    const std::string section(cut(text, "\n"));
    const auto settings = ini_section(text, section);
    if (!settings) return;
    std::string written = "[" + section + "]\n";
    for (const auto& [name, value] : *settings) {
        FUZZ_CHECK(name.find_first_of("=\n") == std::string::npos);
        FUZZ_CHECK(value.find('\n') == std::string::npos);
        written += name + "=" + value + "\n";
    }
    FUZZ_CHECK(ini_section(written, section) == settings);
    FUZZ_CHECK(ini_section("[other]\nname=value\n" + written, section) == settings);
    FUZZ_CHECK(!ini_section(written, section + "x"));
}

std::map<std::string, std::string> source(char which) {
    std::map<std::string, std::string> names = {{"AWS_EC2_METADATA_DISABLED", "true"}};
    if (which == 'c') names["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/keys";
    if (which == 'i') names.clear();
    if (which == 'w') {
        names["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/dev/null";
        names["AWS_ROLE_ARN"] = "role";
    }
    return names;
}

void check_answers(char which, std::string_view script) {
    const auto http = std::make_shared<ScriptedHttp>(script);
    const auto names = source(which);
    CredentialChain chain(
        [&](const char* name) {
            const auto at = names.find(name);
            return at == names.end() ? std::string() : at->second;
        },
        http, std::make_shared<FuzzClock>(), "us-east-1");
    for (int round = 0; round < 2; ++round) {
        const auto keys = chain.keys();
        if (!keys) {
            check_error(keys.error());
            continue;
        }
        FUZZ_CHECK(!keys->access_key_id.empty() && !keys->secret_access_key.empty());
        for (const char c : keys->access_key_id + keys->secret_access_key + keys->session_token) {
            FUZZ_CHECK(c > ' ' && c <= '~');
        }
        chain.reject(*keys);
    }
    for (const auto& asked : http->asked()) {
        const bool sts = asked.url.host == "sts.us-east-1.amazonaws.com";
        FUZZ_CHECK(which == 'w' ? sts && asked.url.scheme == "https"
                                : is_link_local(asked.url.host));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (text.empty()) return 0;
    if (text[0] == 'p') {
        check_profile(text.substr(1));
    } else {
        std::string_view script = text.substr(1);
        cut(script, "\n");
        check_answers(text[0], script);
    }
    return 0;
}
