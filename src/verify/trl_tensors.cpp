#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/text.hpp"
#include "base/try.hpp"
#include "verify/verified_delta.hpp"

namespace wisp {
namespace {

struct Pair {
    const SafetensorsEntry* positions = nullptr;
    const SafetensorsEntry* values = nullptr;
};

std::unexpected<Error> corrupt(std::string what) {
    return fail(ErrorKind::kCorrupt, std::move(what));
}

Result<std::map<std::string, Pair>> pair_up(const SafetensorsHeader& header) {
    std::map<std::string, Pair> pairs;
    for (const SafetensorsEntry& entry : header.entries) {
        std::string_view name = entry.info.name;
        const SafetensorsEntry* Pair::*side = nullptr;
        for (const auto& [suffix, role] :
             {std::pair(kTrlIndices, &Pair::positions), std::pair(kTrlIdx, &Pair::positions),
              std::pair(kTrlValues, &Pair::values), std::pair(kTrlVal, &Pair::values)}) {
            if (!name.ends_with(suffix)) continue;
            name.remove_suffix(suffix.size());
            side = role;
            break;
        }
        if (side == nullptr) {
            return corrupt(fmt::format("tensor {} is neither positions nor values",
                                       shown(entry.info.name)));
        }
        if (entry.info.shape.size() != 1) {
            return corrupt(fmt::format("tensor {} is not flat", shown(entry.info.name)));
        }
        Pair& pair = pairs[std::string(name)];
        if (pair.*side != nullptr) {
            return corrupt(fmt::format("tensor {} has two sets of positions or values",
                                       shown(name)));
        }
        pair.*side = &entry;
    }
    return pairs;
}

Result<PositionCoding> coding_of(const SafetensorsEntry& positions) {
    const bool may_be_gaps = positions.info.name.ends_with(kTrlIdx);
    switch (positions.info.dtype) {
        case Dtype::kI32: return PositionCoding::kIndex32;
        case Dtype::kI64: return PositionCoding::kIndex64;
        case Dtype::kU16:
            if (may_be_gaps) return PositionCoding::kGap16;
            break;
        case Dtype::kU32:
            if (may_be_gaps) return PositionCoding::kGap32;
            break;
        default: break;
    }
    return fail(ErrorKind::kUnsupported,
                fmt::format("{} is {}; positions are read as I32, I64, or U16 and U32 gaps",
                            shown(positions.info.name), traits_of(positions.info.dtype).name));
}

template <class T>
Result<void> check_indices(DeltaTensor& tensor) {
    std::int64_t previous = -1;
    for (std::size_t at = 0; at < tensor.positions.size(); at += sizeof(T)) {
        const std::int64_t index = load_le<T>(tensor.positions.data() + at);
        if (index <= previous) {
            return corrupt(fmt::format("tensor {}: position {} follows {}; positions must be "
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
            return corrupt(fmt::format("tensor {} has positions without values, or the reverse",
                                       shown(name)));
        }
        if (pair.positions->info.shape[0] != pair.values->info.shape[0]) {
            return corrupt(fmt::format("tensor {} has {} positions but {} values", shown(name),
                                       pair.positions->info.shape[0],
                                       pair.values->info.shape[0]));
        }
        DeltaTensor tensor;
        tensor.info = {name, pair.values->info.dtype, {}};
        tensor.changed_elements = pair.values->info.shape[0];
        tensor.positions = bytes_of(*pair.positions);
        tensor.values = bytes_of(*pair.values);
        tensor.stored_bytes = tensor.positions.size() + tensor.values.size();
        if (tensor.changed_elements == 0) continue;
        WISP_ASSIGN(tensor.coding, coding_of(*pair.positions));
        WISP_TRY(check_positions(tensor));
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

}  // namespace wisp
