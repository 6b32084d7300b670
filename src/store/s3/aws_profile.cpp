#include "store/s3/aws_profile.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/s3/wire_limits.hpp"

namespace wisp {
namespace {

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// A comment starts a line, or follows a blank.
std::string_view without_comment(std::string_view value) {
    for (const std::string_view mark : {" #", " ;", "\t#", "\t;"}) {
        value = value.substr(0, value.find(mark));
    }
    return trimmed(value);
}

/// "[profile x]" and "[ profile   x ]" name the same section.
std::string section_name(std::string_view line) {
    const auto close = line.find(']');
    if (!line.starts_with('[') || close == std::string_view::npos) return {};
    std::string name;
    for (const char c : trimmed(line.substr(1, close - 1))) {
        const bool blank = c == ' ' || c == '\t';
        if (!blank) name += c;
        if (blank && !name.ends_with(' ')) name += ' ';
    }
    return name;
}

Result<std::string> read_if_there(const std::string& path) {
    auto text = read_small_file(path);
    if (!text && text.error().kind == ErrorKind::kNotFound) return std::string();
    return text;
}

std::string path_from(const Environment& environment, const char* variable, const char* usual) {
    if (std::string path = environment(variable); !path.empty()) return path;
    const std::string home = environment("HOME");
    return home.empty() ? std::string() : home + usual;
}

}  // namespace

Environment process_environment() {
    return [](const char* name) -> std::string {
        const char* value = std::getenv(name);
        return value == nullptr ? std::string() : std::string(value);
    };
}

Result<std::string> read_small_file(const std::string& path) {
    if (path.empty()) return fail(ErrorKind::kNotFound, "no file was named");
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::unexpected(file_error("cannot read", path, errno));
    std::string text(limits::kCredentialBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > limits::kCredentialBytes) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is too long to be a file of settings", shown(path)));
    }
    return text;
}

std::optional<std::map<std::string, std::string>> ini_section(std::string_view text,
                                                              std::string_view section) {
    std::optional<std::map<std::string, std::string>> found;
    bool inside = false;
    while (!text.empty()) {
        const auto end = text.find('\n');
        const std::string_view raw = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        const std::string_view line = trimmed(raw);
        if (line.empty() || line[0] == '#' || line[0] == ';') continue;
        if (line[0] == '[') {
            inside = section_name(line) == section;
            if (inside && !found) found.emplace();
            continue;
        }
        // Indented lines belong to a nested setting such as "s3 =", which holds no credentials.
        const auto equals = line.find('=');
        if (!inside || raw[0] == ' ' || raw[0] == '\t' || equals == std::string_view::npos)
            continue;
        std::string name(trimmed(line.substr(0, equals)));
        for (char& c : name) {
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        }
        (*found)[name] = without_comment(line.substr(equals + 1));
    }
    return found;
}

Result<AwsProfile> load_aws_profile(const Environment& environment) {
    AwsProfile profile;
    profile.name = environment("AWS_PROFILE");
    profile.named_by_user = !profile.name.empty();
    if (!profile.named_by_user) profile.name = "default";
    WISP_ASSIGN(const std::string config,
                read_if_there(path_from(environment, "AWS_CONFIG_FILE", "/.aws/config")));
    WISP_ASSIGN(
        const std::string credentials,
        read_if_there(path_from(environment, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")));
    auto from_config = ini_section(config, "profile " + profile.name);
    if (!from_config && profile.name == "default") from_config = ini_section(config, "default");
    auto from_credentials = ini_section(credentials, profile.name);
    profile.found = from_config || from_credentials;
    if (from_credentials) profile.settings = std::move(*from_credentials);
    if (from_config) profile.settings.merge(*from_config);
    return profile;
}

}  // namespace wisp
