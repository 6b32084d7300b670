// The files that the AWS tools share: ~/.aws/credentials and ~/.aws/config, and the environment.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

/// The value of a variable, empty when it is not set. Given, not asked for, so that tests can.
using Environment = std::function<std::string(const char* name)>;

Environment process_environment();

/// The settings of one profile, from both files; those in the credentials file win.
struct AwsProfile {
    std::string name;
    bool named_by_user = false;  // through AWS_PROFILE
    bool found = false;
    std::map<std::string, std::string> settings;

    std::string get(const std::string& setting) const {
        const auto at = settings.find(setting);
        return at == settings.end() ? std::string() : at->second;
    }
};

/// Files that are not there are empty; kDenied when one cannot be read.
Result<AwsProfile> load_aws_profile(const Environment& environment);

/// The settings in section `section` of an INI text; nothing when there is no such section.
std::optional<std::map<std::string, std::string>> ini_section(std::string_view text,
                                                              std::string_view section);

/// A small file of settings or secrets, whole. kNotFound when it is not there.
Result<std::string> read_small_file(const std::string& path);

}  // namespace wisp
