#include "delta/delta_layout.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace wisp {

std::string_view name_of(Codec codec) {
    switch (codec) {
        case Codec::kCompact: return "compact";
        case Codec::kSwift: return "swift";
        case Codec::kPlain: return "plain";
        case Codec::kGap: return "gap";
    }
    return "compact";
}

std::optional<Codec> parse_codec(std::string_view name) {
    for (const Codec codec : {Codec::kCompact, Codec::kSwift, Codec::kPlain, Codec::kGap}) {
        if (name_of(codec) == name) return codec;
    }
    return std::nullopt;
}

std::string sparsity_text(std::uint64_t changed, std::uint64_t total) {
    const double share = total == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(total);
    std::string text = fmt::format("{}", 1.0 - share);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

std::string python_list(const std::vector<std::string>& names) {
    std::string list = "[";
    for (const std::string& name : names) {
        if (list.size() > 1) list += ", ";
        list += nlohmann::json(name).dump(-1, ' ', true);
    }
    return list + "]";
}

std::string seal_text(std::span<const std::byte> header, const Sha256Digest& data) {
    const std::string zeros(kSealDigits, '0');
    Sha256 hash;
    hash.add(as_bytes(std::string_view("wisp seal 1")));
    hash.add(header.first(kSealOffset));
    hash.add(as_bytes(zeros));
    hash.add(header.subspan(kSealOffset + kSealDigits));
    hash.add(data);
    return to_hex(hash.finish());
}

}  // namespace wisp
