#include "log/tombstone.hpp"

#include <nlohmann/json.hpp>

#include "log/checked_line.hpp"
#include "log/strict_json.hpp"

namespace wisp {
namespace {

constexpr std::string_view kTombstoneMark = "tombstone";
constexpr std::uint64_t kTombstoneVersion = 1;
constexpr std::size_t kTombstoneRunDigits = 32;
constexpr std::size_t kMostBytes = 1024;

}  // namespace

std::string write_tombstone(const Tombstone& tombstone) {
    const nlohmann::ordered_json json = {{"wisp", kTombstoneMark},
                                         {"version", kTombstoneVersion},
                                         {"run", tombstone.run},
                                         {"seq", tombstone.seq},
                                         {"floor", tombstone.floor}};
    return with_check(json.dump() + "\n");
}

std::optional<Tombstone> parse_tombstone(std::string_view object) {
    if (object.size() > kMostBytes) return std::nullopt;
    const auto json = parse_strict_json(object);
    if (!json) return std::nullopt;
    std::string problem;
    FieldReader in(*json, problem);
    if (in.text("wisp") != kTombstoneMark) return std::nullopt;
    Tombstone tombstone{in.hex("run", kTombstoneRunDigits), in.number("seq"), in.number("floor")};
    if (!problem.empty()) return std::nullopt;
    return tombstone;
}

}  // namespace wisp
