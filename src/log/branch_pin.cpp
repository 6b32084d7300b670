#include "log/branch_pin.hpp"

#include <nlohmann/json.hpp>

#include "base/try.hpp"
#include "log/checked_line.hpp"
#include "log/run_keys.hpp"
#include "log/strict_json.hpp"

namespace wisp {
namespace {

constexpr std::size_t kMostKeys = 100'000;

}  // namespace

std::string write_branch_pin(const BranchPin& pin) {
    const nlohmann::ordered_json json = {
        {"wisp", "branch"}, {"version", 1}, {"run", pin.run}, {"at", pin.at}, {"keys", pin.keys}};
    return with_check(json.dump() + "\n");
}

Result<BranchPin> parse_branch_pin(std::string_view text) {
    WISP_ASSIGN(const nlohmann::json json, parse_strict_json(text));
    std::string problem;
    FieldReader in(json, problem);
    if (in.text("wisp") != "branch") in.refuse("no mark of a branch");
    BranchPin pin{in.text("run"), in.text("at"), {}};
    for (const auto& key : in.array("keys", kMostKeys)) {
        if (!key.is_string() || !is_data_key(key.get<std::string>())) {
            in.refuse("a key that is none");
            break;
        }
        pin.keys.push_back(key.get<std::string>());
    }
    if (!problem.empty()) return fail(ErrorKind::kCorrupt, problem);
    return pin;
}

}  // namespace wisp
