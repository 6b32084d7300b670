#include "log/branch_pins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "log/checked_line.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace {

constexpr std::size_t kPage = 1000;

/// Nothing when the slot is empty.
Result<std::optional<BranchPin>> read_pin(const Location& holder, const std::string& key) {
    const std::string full = holder.key(key);
    auto bytes = read_whole(*holder.store, full, kBranchPinBytes);
    if (bytes && !check_holds(as_text(*bytes))) {
        bytes = read_whole(*holder.store, full, kBranchPinBytes);
    }
    if (!bytes && bytes.error().kind == ErrorKind::kNotFound) return std::nullopt;
    if (!bytes) return std::unexpected(std::move(bytes).error());
    // One wrong letter in a key, and another object would be kept.
    Result<BranchPin> pin = fail(ErrorKind::kCorrupt, "its check does not hold");
    if (check_holds(as_text(*bytes))) pin = parse_branch_pin(as_text(*bytes));
    if (pin) return std::move(*pin);
    return fail(ErrorKind::kCorrupt,
                fmt::format("{} is damaged ({}): what that branch needs is not known; restore it "
                            "from a copy",
                            shown(full), pin.error().text));
}

}  // namespace

Result<std::vector<HeldPin>> read_branch_pins(const Location& holder) {
    std::vector<HeldPin> pins;
    const std::string prefix = holder.key(kBranchesPrefix);
    for (std::string beyond;;) {
        const std::uint64_t slot = pins.size() + 1;
        WISP_ASSIGN(auto pin, read_pin(holder, branch_key(slot)));
        if (pin) {
            pins.push_back({slot, std::move(*pin)});
            if (beyond <= holder.key(branch_key(slot))) beyond.clear();
            continue;
        }
        if (!beyond.empty()) {
            return fail(
                ErrorKind::kGap,
                fmt::format("{} is there, but {} is not: a branch's pin is missing, and what it "
                            "needs is not known; restore it from a copy",
                            shown(beyond), shown(holder.key(branch_key(slot)))));
        }
        // A listing may show what one wrong answer hid; it can add, and never take away. Nor is it
        // proof before the slot was asked for again: a branch may have been made in between.
        const std::string last = holder.key(branch_key(pins.size()));
        WISP_ASSIGN(const auto page, holder.store->list(prefix, last, kPage));
        for (const ListedObject& object : page) {
            if (object.key > last) beyond = object.key;
        }
        if (beyond.empty()) return pins;
    }
}

Result<void> write_branch_pin(const Location& holder, const BranchPin& pin) {
    WISP_ASSIGN(const auto pins, read_branch_pins(holder));
    const std::string text = write_branch_pin(pin);
    const auto own =
        std::ranges::find(pins, pin.run, [](const HeldPin& held) { return held.pin.run; });
    if (own != pins.end()) {
        return holder.store->put(holder.key(branch_key(own->slot)), as_bytes(text));
    }
    if (pin.keys.empty()) return {};
    for (std::uint64_t slot = pins.size() + 1;; ++slot) {
        const auto created = holder.store->create(holder.key(branch_key(slot)), as_bytes(text));
        if (!created) return std::unexpected(created.error());
        if (*created == Created::kNew) return {};
        // Another branch was faster; or it is this one's, from an answer that was lost.
        WISP_ASSIGN(const auto there, read_pin(holder, branch_key(slot)));
        if (there && there->run == pin.run) {
            return holder.store->put(holder.key(branch_key(slot)), as_bytes(text));
        }
    }
}

}  // namespace wisp
