#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/verified_delta.hpp"

namespace wisp {
namespace {

struct Pair {
    const SafetensorsEntry* positions = nullptr;
    const SafetensorsEntry* values = nullptr;
};

/// How #5417 and how #5932 name the two halves of a tensor.
struct Family {
    std::string_view positions;
    std::string_view values;
};
constexpr Family kFamilies[] = {{kTrlIndices, kTrlValues}, {kTrlIdx, kTrlVal}};

Result<std::map<std::string, Pair>> pair_up(const SafetensorsHeader& header) {
    std::map<std::string, Pair> pairs;
    const Family* used = nullptr;
    for (const SafetensorsEntry& entry : header.entries) {
        std::string_view name = entry.info.name;
        const SafetensorsEntry* Pair::* side = nullptr;
        const Family* family = nullptr;
        for (const Family& candidate : kFamilies) {
            const bool positions = name.ends_with(candidate.positions);
            if (!positions && !name.ends_with(candidate.values)) continue;
            name.remove_suffix((positions ? candidate.positions : candidate.values).size());
            side = positions ? &Pair::positions : &Pair::values;
            family = &candidate;
            break;
        }
        if (family == nullptr || (used != nullptr && family != used)) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("tensor {} is neither positions nor values, or named in "
                                    "another way than the rest",
                                    shown(entry.info.name)));
        }
        used = family;
        if (entry.info.shape.size() != 1) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("tensor {} is not flat", shown(entry.info.name)));
        }
        pairs[std::string(name)].*side = &entry;
    }
    return pairs;
}

/// The dtype decides, and must be one that the named encoding, if any, writes.
Result<PositionCoding> coding_of(const SafetensorsEntry& positions, std::string_view encoding) {
    const bool plain = positions.info.name.ends_with(kTrlIndices);
    const bool may_be_gaps = !plain && encoding != kTrlRawEncoding;
    const bool may_be_indices = plain || encoding != kTrlGapEncoding;
    switch (positions.info.dtype) {
        case Dtype::kI32:
            if (may_be_indices) return PositionCoding::kIndex32;
            break;
        case Dtype::kI64:
            if (may_be_indices) return PositionCoding::kIndex64;
            break;
        case Dtype::kU16:
            if (may_be_gaps) return PositionCoding::kGap16;
            break;
        case Dtype::kU32:
            if (may_be_gaps) return PositionCoding::kGap32;
            break;
        default: break;
    }
    return fail(ErrorKind::kUnsupported,
                fmt::format("{} is {}, which is not how {} positions are written; publish with "
                            "plain, gap_delta or raw",
                            shown(positions.info.name), traits_of(positions.info.dtype).name,
                            encoding.empty() ? "its" : encoding));
}

template <class T>
Result<void> check_indices(DeltaTensor& tensor) {
    std::int64_t previous = -1;
    for (std::size_t at = 0; at < tensor.positions.size(); at += sizeof(T)) {
        const std::int64_t index = load_le<T>(tensor.positions.data() + at);
        if (index <= previous) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("tensor {}: position {} follows {}; positions must be "
                                    "strictly increasing and not negative",
                                    shown(tensor.info.name), index, previous));
        }
        previous = index;
    }
    tensor.last_position = static_cast<std::uint64_t>(previous);
    return {};
}

template <class T>
Result<void> check_gaps(DeltaTensor& tensor) {
    std::uint64_t next = 0;
    for (std::size_t k = 0; k < tensor.positions.size() / sizeof(T); ++k) {
        if (k % kGapMark == 0) tensor.gap_marks.push_back(next);
        // Fewer than 2^60 gaps below 2^32 each would be needed to overflow; a file has no room.
        next += std::uint64_t{load_le<T>(tensor.positions.data() + k * sizeof(T))} + 1;
    }
    tensor.last_position = next - 1;
    return {};
}

Result<void> check_positions(DeltaTensor& tensor) {
    switch (tensor.coding) {
        case PositionCoding::kIndex32: return check_indices<std::int32_t>(tensor);
        case PositionCoding::kIndex64: return check_indices<std::int64_t>(tensor);
        case PositionCoding::kGap16: return check_gaps<std::uint16_t>(tensor);
        case PositionCoding::kGap32: return check_gaps<std::uint32_t>(tensor);
    }
    return {};
}

}  // namespace

Result<std::vector<DeltaTensor>> verify_trl_tensors(const SafetensorsHeader& header,
                                                    std::span<const std::byte> data) {
    const auto encoding = header.metadata.find("encoding");
    if (encoding != header.metadata.end() && encoding->second != kTrlGapEncoding &&
        encoding->second != kTrlRawEncoding) {
        return fail(ErrorKind::kUnsupported,
                    fmt::format("its positions are coded as {}, which needs a GPU; publish with "
                                "gap_delta or raw",
                                shown(encoding->second)));
    }
    const auto bytes_of = [&](const SafetensorsEntry& entry) {
        return data.subspan(static_cast<std::size_t>(entry.begin),
                            static_cast<std::size_t>(entry.end - entry.begin));
    };
    WISP_ASSIGN(const auto pairs, pair_up(header));
    std::vector<DeltaTensor> tensors;
    for (const auto& [name, pair] : pairs) {
        if (pair.positions == nullptr || pair.values == nullptr) {
            return fail(
                ErrorKind::kCorrupt,
                fmt::format("tensor {} has positions without values, or the reverse", shown(name)));
        }
        if (pair.positions->info.shape[0] != pair.values->info.shape[0]) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("tensor {} has {} positions but {} values", shown(name),
                                    pair.positions->info.shape[0], pair.values->info.shape[0]));
        }
        DeltaTensor tensor;
        tensor.info = {name, pair.values->info.dtype, {}};
        tensor.changed_elements = pair.values->info.shape[0];
        tensor.positions = bytes_of(*pair.positions);
        tensor.values = bytes_of(*pair.values);
        tensor.stored_bytes = tensor.positions.size() + tensor.values.size();
        if (tensor.changed_elements == 0) continue;
        WISP_ASSIGN(tensor.coding,
                    coding_of(*pair.positions, encoding == header.metadata.end()
                                                   ? std::string_view()
                                                   : std::string_view(encoding->second)));
        WISP_TRY(check_positions(tensor));
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

}  // namespace wisp
