#include "wisp/step_folders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/file.hpp"
#include "base/text.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kOpen = "{step";
constexpr std::size_t kMostDigits = 19;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<std::uint64_t> number_of(std::string_view digits) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || !is_digit(digits.front()) || error != std::errc() ||
        end != digits.data() + digits.size()) {
        return std::nullopt;
    }
    return value;
}

/// What follows "{step": "}" is 1, ":06}" is 6; nothing for anything else.
std::optional<std::size_t> digits_asked(std::string_view between) {
    if (between.empty()) return 1;
    if (!between.starts_with(":0")) return std::nullopt;
    const auto digits = number_of(between.substr(2));
    if (!digits || *digits == 0 || *digits > kMostDigits) return std::nullopt;
    return static_cast<std::size_t>(*digits);
}

}  // namespace

bool StepPattern::is_one(std::string_view path) {
    return path.find(kOpen) != std::string_view::npos;
}

Result<StepPattern> StepPattern::parse(std::string_view path) {
    const auto refuse = [&](std::string_view why) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} {}; write {{step}} once, as in 'models/step_{{step}}', or "
                                "{{step:06}} for six digits",
                                shown(std::string(path)), why));
    };
    const std::size_t open = path.find(kOpen);
    if (open == std::string_view::npos) return refuse("does not say where the step goes");
    if (path.find(kOpen, open + 1) != std::string_view::npos) return refuse("names the step twice");
    const std::size_t close = path.find('}', open);
    if (close == std::string_view::npos) return refuse("has a brace that is not closed");
    const auto digits = digits_asked(path.substr(open + kOpen.size(), close - open - kOpen.size()));
    if (!digits) return refuse("asks for the step in a way that wisp does not know");

    const std::size_t slash = path.rfind('/', open);
    const std::size_t name = slash == std::string_view::npos ? 0 : slash + 1;
    const std::size_t end = std::min(path.find('/', close), path.size());
    StepPattern pattern;
    pattern.text_ = path;
    pattern.root_ =
        slash == std::string_view::npos ? fs::path(".") : fs::path(path.substr(0, name));
    pattern.before_ = path.substr(name, open - name);
    pattern.after_ = path.substr(close + 1, end - close - 1);
    pattern.digits_ = *digits;
    std::string_view below = path.substr(end);
    while (below.starts_with('/')) below.remove_prefix(1);
    while (below.ends_with('/')) below.remove_suffix(1);
    pattern.below_ = below;
    const bool meets_digits = (!pattern.before_.empty() && is_digit(pattern.before_.back())) ||
                              (!pattern.after_.empty() && is_digit(pattern.after_.front()));
    if (meets_digits)
        return refuse("has a digit beside the step, so that none could tell them apart");
    if (pattern.before_.starts_with('.')) return refuse("makes hidden folders");
    return pattern;
}

StepPattern StepPattern::any_in(fs::path root) {
    StepPattern pattern;
    pattern.text_ = root.string();
    pattern.root_ = std::move(root);
    pattern.any_prefix_ = true;
    return pattern;
}

std::string StepPattern::name_of(std::uint64_t step) const {
    return fmt::format("{}{:0{}}{}", before_, step, digits_, after_);
}

std::optional<std::uint64_t> StepPattern::step_of(std::string_view name) const {
    if (any_prefix_) {
        if (name.starts_with('.')) return std::nullopt;
        const std::size_t last = name.find_last_not_of("0123456789");
        return number_of(name.substr(last == std::string_view::npos ? 0 : last + 1));
    }
    if (!name.starts_with(before_)) return std::nullopt;
    name.remove_prefix(before_.size());
    if (!name.ends_with(after_)) return std::nullopt;
    name.remove_suffix(after_.size());
    const auto step = number_of(name);
    // "step_7" is none of 'step_{step:06}'.
    return step && name.size() == fmt::format("{:0{}}", *step, digits_).size() ? step
                                                                               : std::nullopt;
}

}  // namespace wisp
