// What the reader of commits says of one that was changed.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "expect_result.hpp"
#include "log/commit.hpp"

namespace wisp::testing {

using Json = nlohmann::ordered_json;

/// What a reader says of a sound commit after `change`.
inline std::string refusal(const Commit& commit, const std::function<void(Json&)>& change) {
    Json json = Json::parse(write_commit(commit));
    change(json);
    return text_of(parse_commit(json.dump() + "\n", "it"));
}

inline std::string parse_outcome(std::string_view text) {
    return outcome_of(parse_commit(text, "it"));
}

}  // namespace wisp::testing
