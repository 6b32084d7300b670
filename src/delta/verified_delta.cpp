#include "delta/verified_delta.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/bytes.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/needed_tiles.hpp"
#include "delta/delta_directory.hpp"

namespace wisp {
namespace {

std::unexpected<Error> corrupt(std::string what) {
    return fail(ErrorKind::kCorrupt, std::move(what));
}

Result<std::string> metadata_text(const Metadata& metadata, std::string_view key) {
    const auto at = metadata.find(std::string(key));
    if (at == metadata.end()) return corrupt(fmt::format("its metadata lacks {}", key));
    return at->second;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

Result<std::uint64_t> metadata_number(const Metadata& metadata, std::string_view key) {
    WISP_ASSIGN(const std::string text, metadata_text(metadata, key));
    const auto value = parse_number(text);
    if (!value) return corrupt(fmt::format("its {} is {}, not a number", key, shown(text)));
    return *value;
}

Result<StateDigest> metadata_digest(const Metadata& metadata, std::string_view key) {
    WISP_ASSIGN(const std::string text, metadata_text(metadata, key));
    const auto digest = parse_digest(text);
    if (!digest) return corrupt(fmt::format("its {} is not 32 hexadecimal digits", key));
    return *digest;
}

/// Often enough for a bar, seldom enough to cost nothing.
constexpr std::size_t kToldBytes = std::size_t{1} << 26;

Sha256Digest told_sha256(std::span<const std::byte> bytes, const Progress& progress) {
    Sha256 hash;
    for (std::size_t at = 0; at < bytes.size();) {
        const auto piece = bytes.subspan(at, std::min(kToldBytes, bytes.size() - at));
        hash.add(piece);
        at += piece.size();
        if (progress) progress("read", at, bytes.size());
    }
    return hash.finish();
}

Result<void> check_seal(std::span<const std::byte> file, const SafetensorsHeader& header,
                        const Progress& progress) {
    const auto data_offset = static_cast<std::size_t>(header.data_offset);
    const std::string_view head(reinterpret_cast<const char*>(file.data()), data_offset);
    WISP_ASSIGN(const std::string seal, metadata_text(header.metadata, kSealKey));
    if (head.substr(8, kSealLead.size()) != kSealLead ||
        head.substr(kSealOffset, kSealDigits) != seal) {
        return corrupt("its seal is not where it belongs: another tool rewrote the file");
    }
    const Sha256Digest data = told_sha256(file.subspan(data_offset), progress);
    if (seal_text(file.first(data_offset), data) != seal) {
        return corrupt("its bytes do not match its seal: damaged on the way or on disk");
    }
    return {};
}

Result<void> read_sealed_facts(const Metadata& metadata, FileForm form, DeltaFacts& facts) {
    WISP_ASSIGN(facts.base, metadata_digest(metadata, kBaseKey));
    WISP_ASSIGN(facts.result, metadata_digest(metadata, kResultKey));
    WISP_ASSIGN(facts.touched, metadata_digest(metadata, kTouchedKey));
    WISP_ASSIGN(facts.schema_digest, metadata_text(metadata, kSchemaKey));
    if (!parse_digest(facts.schema_digest)) {
        return corrupt(fmt::format("its {} is not 32 hexadecimal digits", kSchemaKey));
    }
    WISP_ASSIGN(facts.step,
                metadata_number(metadata, form == FileForm::kBlocks ? "step" : "model_version"));
    return {};
}

struct BlockBody {
    unsigned log2_block_elements = 0;
    std::vector<DeltaTensor> tensors;
    std::uint64_t payload_bytes = 0;
};

/// 0: it is not sliced.
Result<unsigned> read_slices(const SafetensorsHeader& header) {
    if (!header.metadata.contains(std::string(kSlicesKey))) return 0U;
    WISP_ASSIGN(const std::uint64_t slices, metadata_number(header.metadata, kSlicesKey));
    if (slices == 0 || slices > limits::kSlices)
        return corrupt("its number of slices is out of range");
    if (header.entries.front().info.name != kDirectoryTensor) {
        return corrupt("it is sliced, and its directory does not come first");
    }
    return static_cast<unsigned>(slices);
}

/// The tiles of a sliced delta, those that `held` needs if it is given.
Result<void> take_tiles(const DirectoryTensor& listed, const std::vector<std::uint64_t>& offsets,
                        std::span<const std::byte> bytes, const HeldSlices* held,
                        DeltaTensor& tensor) {
    const TileGrid grid(tensor.info, tensor.cut);
    std::vector<bool> needed;
    if (held != nullptr) {
        const auto parts = held->find(tensor.info.name);
        WISP_ASSIGN(needed, needed_tiles(tensor.info, grid,
                                         parts == held->end() ? std::span<const HeldPart>()
                                                              : std::span(parts->second)));
        tensor.absent.resize(needed.size());
    }
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        tensor.blocks.emplace_back();
        tensor.proofs.emplace_back();
        if (listed.block_bytes[i] == 0) continue;
        if (held != nullptr && !needed[i]) {
            tensor.absent[i] = true;
            continue;
        }
        const auto tile = bytes.subspan(static_cast<std::size_t>(offsets[i]),
                                        static_cast<std::size_t>(listed.block_bytes[i]));
        if (tile_hash(tile) != listed.hashes[i]) {
            return corrupt(fmt::format("tile {} of tensor {} is not what its directory says", i,
                                       shown(tensor.info.name)));
        }
        tensor.proofs.back() = {load_le<std::uint64_t>(tile.data()),
                                load_le<std::uint64_t>(tile.data() + 8)};
        tensor.blocks.back() = tile.subspan(kTileProofBytes);
        tensor.stored_bytes += tile.size();
    }
    return {};
}

Result<BlockBody> read_blocks(const SafetensorsHeader& header, std::span<const std::byte> data,
                              const HeldSlices* held = nullptr) {
    const SafetensorsEntry* blocks = header.find(kBlocksTensor);
    const SafetensorsEntry* packed = header.find(kDirectoryTensor);
    const auto is_flat_bytes = [](const SafetensorsEntry* entry) {
        return entry != nullptr && entry->info.dtype == Dtype::kU8 && entry->info.shape.size() == 1;
    };
    if (header.entries.size() != 2 || !is_flat_bytes(blocks) || !is_flat_bytes(packed)) {
        return corrupt("it does not hold just wisp.blocks and wisp.directory, both flat U8");
    }
    const auto bytes_of = [&](const SafetensorsEntry& entry) {
        return data.subspan(static_cast<std::size_t>(entry.begin),
                            static_cast<std::size_t>(entry.end - entry.begin));
    };
    WISP_ASSIGN(const std::uint64_t plain_bytes,
                metadata_number(header.metadata, kDirectorySizeKey));
    const auto block_bytes = bytes_of(*blocks);
    WISP_ASSIGN(const unsigned slices, read_slices(header));
    WISP_ASSIGN(DeltaDirectory directory,
                parse_directory(bytes_of(*packed), plain_bytes, block_bytes.size(), slices));
    const auto offsets =
        slices > 0 ? tile_offsets(directory) : std::vector<std::vector<std::uint64_t>>();
    BlockBody body;
    body.log2_block_elements = directory.log2_block_elements;
    body.payload_bytes = block_bytes.size();
    std::size_t at = 0;
    for (DirectoryTensor& listed : directory.tensors) {
        DeltaTensor tensor;
        tensor.info = std::move(listed.info);
        tensor.shape_known = true;
        tensor.changed_elements = listed.changed_elements;
        tensor.cut = slices > 0 ? listed.cut : TensorCut{directory.log2_block_elements, 1};
        if (slices > 0) {
            WISP_TRY(take_tiles(listed, offsets[body.tensors.size()], block_bytes, held, tensor));
            body.tensors.push_back(std::move(tensor));
            continue;
        }
        for (const std::uint64_t size : listed.block_bytes) {
            tensor.blocks.push_back(block_bytes.subspan(at, static_cast<std::size_t>(size)));
            at += static_cast<std::size_t>(size);
            tensor.stored_bytes += size;
        }
        body.tensors.push_back(std::move(tensor));
    }
    return body;
}

Result<Codec> check_block_version(const Metadata& metadata) {
    WISP_ASSIGN(const std::string version, metadata_text(metadata, "version"));
    WISP_ASSIGN(const std::string name, metadata_text(metadata, "codec"));
    const auto codec = parse_codec(name);
    if (version != kDeltaVersion || !codec || !holds_blocks(*codec)) {
        return fail(ErrorKind::kUnsupported,
                    fmt::format("it is of version {}, codec {}; this wisp reads version {}, codecs "
                                "compact and swift: upgrade",
                                shown(version), shown(name), kDeltaVersion));
    }
    return *codec;
}

bool all_names_end_with(const SafetensorsHeader& header, std::string_view x, std::string_view y) {
    return !header.entries.empty() && std::ranges::all_of(header.entries, [&](const auto& entry) {
        return entry.info.name.ends_with(x) || entry.info.name.ends_with(y);
    });
}

/// Any key of ours means that the seal must hold, even if the seal's own key is the damaged one.
bool has_own_keys(const Metadata& metadata) {
    const auto at = metadata.lower_bound(std::string(kOwnKeyLead));
    return at != metadata.end() && at->first.starts_with(kOwnKeyLead);
}

/// Which of TRL's codecs it is shows in its tensors.
Result<Codec> check_trl_version(const Metadata& metadata) {
    const auto version = metadata.find("version");
    if (version == metadata.end() || version->second == kTrlVersion) return Codec::kPlain;
    return fail(ErrorKind::kUnsupported,
                fmt::format("it is of version {} of TRL's format; this wisp reads version {}: "
                            "upgrade",
                            shown(version->second), kTrlVersion));
}

}  // namespace

FileForm form_of(const SafetensorsHeader& header) {
    const bool ours = has_own_keys(header.metadata) || header.find(kBlocksTensor) != nullptr ||
                      header.find(kDirectoryTensor) != nullptr;
    const auto format = header.metadata.find("format");
    if (format != header.metadata.end() && format->second == kDeltaFormat) {
        return FileForm::kBlocks;
    }
    const auto sparse = header.metadata.find("sparse");
    if (format != header.metadata.end() && format->second == kTrlFormat &&
        sparse != header.metadata.end()) {
        return sparse->second == "True" || ours ? FileForm::kTrl : FileForm::kCheckpoint;
    }
    // Some copies of TRL's files have lost their metadata; no model names tensors like that.
    if (all_names_end_with(header, kTrlIndices, kTrlValues) ||
        all_names_end_with(header, kTrlIdx, kTrlVal)) {
        return FileForm::kTrl;
    }
    // A damaged key must not turn a delta into a checkpoint: its seal will tell.
    return ours ? FileForm::kBlocks : FileForm::kCheckpoint;
}

Result<VerifiedDelta> verify_delta(std::span<const std::byte> file, std::string label,
                                   const Progress& progress) {
    WISP_ASSIGN(SafetensorsHeader header, parse_safetensors(file, label));
    const auto name_file = [&](Error error) {
        error.text = fmt::format("delta {}: {}", shown(label), error.text);
        if (error.kind == ErrorKind::kCorrupt) error.text += "; fetch or write it again";
        return std::unexpected(std::move(error));
    };
    const FileForm form = form_of(header);
    if (form == FileForm::kCheckpoint) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is a checkpoint, not a delta; name a file that 'wisp diff' or "
                                "TRL wrote",
                                shown(label)));
    }
    VerifiedDelta delta;
    delta.sealed_ = form == FileForm::kBlocks || has_own_keys(header.metadata);
    const auto data = file.subspan(static_cast<std::size_t>(header.data_offset));
    auto codec = form == FileForm::kBlocks ? check_block_version(header.metadata)
                                           : check_trl_version(header.metadata);
    if (!codec) return name_file(std::move(codec).error());
    delta.facts_.codec = *codec;
    if (delta.sealed_) {
        if (auto checked = check_seal(file, header, progress); !checked) {
            return name_file(std::move(checked).error());
        }
        if (auto read = read_sealed_facts(header.metadata, form, delta.facts_); !read) {
            return name_file(std::move(read).error());
        }
        if (header.metadata.contains(std::string(kSlicesKey)) && *codec != Codec::kSwift) {
            return name_file({ErrorKind::kCorrupt, "it is sliced, but not of the codec swift"});
        }
    }
    if (form == FileForm::kBlocks) {
        auto body = read_blocks(header, data);
        if (!body) return name_file(std::move(body).error());
        delta.tensors_ = std::move(body->tensors);
        delta.log2_block_elements_ = body->log2_block_elements;
        delta.payload_bytes_ = body->payload_bytes;
    } else {
        auto tensors = verify_trl_tensors(header, data);
        if (!tensors) return name_file(std::move(tensors).error());
        delta.tensors_ = std::move(*tensors);
        delta.payload_bytes_ = data.size();
        const auto encoding = header.metadata.find("encoding");
        const bool gap =
            delta.tensors_.empty()
                ? encoding != header.metadata.end() && encoding->second == kTrlGapEncoding
                : delta.tensors_.front().coding >= PositionCoding::kGap16;
        if (gap) delta.facts_.codec = Codec::kGap;
    }
    const auto number_or_zero = [&](const char* key) {
        const auto at = header.metadata.find(key);
        return at == header.metadata.end() ? 0 : parse_number(at->second).value_or(0);
    };
    if (!delta.sealed_) delta.facts_.step = number_or_zero("model_version");
    delta.facts_.total_elements = number_or_zero("total_elements");
    delta.facts_.changed_tensors = delta.tensors_.size();
    for (const DeltaTensor& tensor : delta.tensors_) {
        delta.facts_.changed_elements += tensor.changed_elements;
    }
    delta.label_ = std::move(label);
    delta.metadata_ = std::move(header.metadata);
    delta.file_bytes_ = file.size();
    return delta;
}

Result<VerifiedDelta> verify_delta_file(const std::filesystem::path& path,
                                        const Progress& progress) {
    WISP_ASSIGN(MappedFile mapped, MappedFile::open(path));
    WISP_ASSIGN(VerifiedDelta delta, verify_delta(mapped.bytes(), path.string(), progress));
    delta.mapped_ = std::move(mapped);
    return delta;
}

Result<DeltaHead> parse_delta_head(std::span<const std::byte> head, std::uint64_t file_bytes,
                                   std::string_view label) {
    WISP_ASSIGN(const SafetensorsHeader header, parse_safetensors_head(head, file_bytes, label));
    const SafetensorsEntry* blocks = header.find(kBlocksTensor);
    const SafetensorsEntry* packed = header.find(kDirectoryTensor);
    if (header.entries.size() != 2 || blocks == nullptr || packed == nullptr) {
        return corrupt("a head that is not of a delta");
    }
    WISP_ASSIGN(const unsigned slices, read_slices(header));
    const auto rest = head.subspan(static_cast<std::size_t>(header.data_offset));
    if (slices == 0 || packed->end != rest.size()) {
        return corrupt("a head that is not of a sliced delta");
    }
    WISP_ASSIGN(const std::uint64_t plain_bytes,
                metadata_number(header.metadata, kDirectorySizeKey));
    DeltaHead parsed;
    WISP_ASSIGN(parsed.directory,
                parse_directory(rest, plain_bytes, blocks->end - blocks->begin, slices));
    parsed.blocks_at = header.data_offset + blocks->begin;
    return parsed;
}

std::optional<std::uint64_t> head_bytes_of(std::span<const std::byte> file) {
    const auto header = parse_safetensors(file, "");
    if (!header || !header->metadata.contains(std::string(kSlicesKey))) return std::nullopt;
    const SafetensorsEntry* directory = header->find(kDirectoryTensor);
    if (directory == nullptr || directory->begin != 0) return std::nullopt;
    return header->data_offset + directory->end;
}

Result<VerifiedDelta> verify_delta_slices(const std::filesystem::path& path,
                                          const HeldSlices& held) {
    WISP_ASSIGN(MappedFile mapped, MappedFile::open(path));
    const std::string label = path.string();
    WISP_ASSIGN(SafetensorsHeader header, parse_safetensors(mapped.bytes(), label));
    VerifiedDelta delta;
    const auto read = [&]() -> Result<BlockBody> {
        WISP_ASSIGN(delta.facts_.codec, check_block_version(header.metadata));
        WISP_TRY(read_sealed_facts(header.metadata, FileForm::kBlocks, delta.facts_));
        if (!header.metadata.contains(std::string(kSlicesKey)) ||
            delta.facts_.codec != Codec::kSwift) {
            return corrupt("it is not sliced");
        }
        return read_blocks(
            header, mapped.bytes().subspan(static_cast<std::size_t>(header.data_offset)), &held);
    };
    auto body = read();
    if (!body) {
        Error error = std::move(body).error();
        error.text = fmt::format("delta {}: {}; fetch it again", shown(label), error.text);
        return std::unexpected(std::move(error));
    }
    delta.sealed_ = delta.partial_ = true;
    delta.tensors_ = std::move(body->tensors);
    delta.log2_block_elements_ = body->log2_block_elements;
    delta.payload_bytes_ = body->payload_bytes;
    delta.label_ = label;
    delta.metadata_ = std::move(header.metadata);
    delta.file_bytes_ = mapped.bytes().size();
    delta.mapped_ = std::move(mapped);
    return delta;
}

}  // namespace wisp
