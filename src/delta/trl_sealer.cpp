#include "delta/trl_sealer.hpp"

#include <limits>
#include <utility>

#include "base/try.hpp"

namespace wisp {
namespace {

Bytes narrowed(std::span<const std::byte> wide) {
    Bytes narrow;
    narrow.reserve(wide.size() / 2);
    for (std::size_t at = 0; at < wide.size(); at += 4) {
        append_fixed(narrow, static_cast<std::uint16_t>(load_le<std::uint32_t>(wide.data() + at)));
    }
    return narrow;
}

}  // namespace

bool needs_wide_indices(std::uint64_t element_count) {
    return element_count > std::uint64_t{std::numeric_limits<std::int32_t>::max()} + 1;
}

Dtype value_dtype(Dtype dtype) {
    return traits_of(dtype).bits < 8 ? Dtype::kU8 : dtype;
}

TrlSealer::TrlSealer(const std::filesystem::path& output, Codec codec, const Schema& schema,
                     Spool positions, Spool values)
    : DeltaSealer(output),
      codec_(codec),
      schema_(schema),
      positions_(std::move(positions)),
      values_(std::move(values)) {}

Result<std::unique_ptr<DeltaSealer>> TrlSealer::create(const std::filesystem::path& output,
                                                       Codec codec, const Schema& schema) {
    WISP_ASSIGN(Spool positions, Spool::create(folder_of(output)));
    WISP_ASSIGN(Spool values, Spool::create(folder_of(output)));
    return std::unique_ptr<DeltaSealer>(
        new TrlSealer(output, codec, schema, std::move(positions), std::move(values)));
}

Result<void> TrlSealer::add(const EncodedBlock& block) {
    if (block.tensor != tensor_) {
        WISP_TRY(close_tensor());
        tensor_ = block.tensor;
    }
    changed_ += block.changed_elements;
    wide_gaps_ |= block.wide_gaps;
    WISP_TRY(positions_.append(block.coded));
    return values_.append(block.values);
}

Result<void> TrlSealer::close_tensor() {
    const std::uint64_t count = std::exchange(changed_, 0);
    const bool wide = std::exchange(wide_gaps_, false);
    if (count == 0) return {};
    const TensorInfo& info = schema_.tensors()[tensor_];
    changed_names_.push_back(info.name);
    total_changed_ += count;
    const bool gap = codec_ == Codec::kGap;
    const Dtype index_dtype =
        gap ? (wide ? Dtype::kU32 : Dtype::kU16)
            : (needs_wide_indices(element_count_of(info)) ? Dtype::kI64 : Dtype::kI32);
    WISP_TRY(move_to_section(positions_, info.name + std::string(gap ? kTrlIdx : kTrlIndices),
                             index_dtype, count, false, gap && !wide));
    return move_to_section(values_, info.name + std::string(gap ? kTrlVal : kTrlValues),
                           value_dtype(info.dtype), count, true, false);
}

Result<void> TrlSealer::move_to_section(Spool& from, const std::string& name, Dtype dtype,
                                        std::uint64_t count, bool is_values, bool narrow) {
    const std::pair key(dtype, is_values);
    if (!sections_.contains(key)) {
        WISP_ASSIGN(Spool spool, Spool::create(folder_of(output_)));
        sections_.emplace(key, Section{std::move(spool), {}});
    }
    Section& section = sections_.at(key);
    const std::uint64_t begin = section.spool.size_bytes();
    WISP_TRY(from.drain([&](std::span<const std::byte> piece) {
        return narrow ? section.spool.append(narrowed(piece)) : section.spool.append(piece);
    }));
    from.clear();
    section.entries.push_back({{name, dtype, {count}}, begin, section.spool.size_bytes()});
    return {};
}

Result<SealedObject> TrlSealer::finish(DeltaFacts& facts) {
    WISP_TRY(close_tensor());
    facts.changed_tensors = changed_names_.size();
    facts.changed_elements = total_changed_;

    Metadata metadata = sealed_metadata(facts);
    metadata["format"] = kTrlFormat;
    metadata["version"] = kTrlVersion;
    metadata["sparse"] = "True";
    metadata["model_version"] = std::to_string(facts.step);
    metadata["num_changed_params"] = std::to_string(facts.changed_tensors);
    metadata["total_changed_elements"] = std::to_string(facts.changed_elements);
    metadata["total_elements"] = std::to_string(facts.total_elements);
    metadata["sparsity"] = sparsity_text(facts.changed_elements, facts.total_elements);
    if (codec_ == Codec::kPlain) {
        metadata["changed_params"] = python_list(changed_names_);
    } else {
        metadata["encoding"] = kTrlGapEncoding;
    }

    std::vector<SafetensorsEntry> entries;
    std::uint64_t offset = 0;
    for (const auto& [key, section] : sections_) {
        for (SafetensorsEntry entry : section.entries) {
            entry.begin += offset;
            entry.end += offset;
            entries.push_back(std::move(entry));
        }
        offset += section.spool.size_bytes();
    }
    return write_file(entries, std::move(metadata), offset, [&](const Sink& sink) -> Result<void> {
        for (auto& [key, section] : sections_) WISP_TRY(section.spool.drain(sink));
        return {};
    });
}

}  // namespace wisp
