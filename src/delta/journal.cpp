#include "delta/journal.hpp"

#include <fmt/format.h>

#include <system_error>

#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/journal_path.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "WISPJRN1";
constexpr std::size_t kDigestsOffset = 8;
constexpr std::size_t kDigestsBytes = 32;
constexpr std::size_t kHashBytes = 32;

Bytes digest_bytes(const StateDigest& base, const StateDigest& result) {
    Bytes bytes;
    for (const std::uint64_t half : {base.a, base.b, result.a, result.b}) append_fixed(bytes, half);
    return bytes;
}

std::unexpected<Error> damaged(const fs::path& path, std::string_view what) {
    return fail(ErrorKind::kCorrupt,
                fmt::format("journal {}: {}; the checkpoint it belongs to was being overwritten: "
                            "restore that from its source, then remove the journal",
                            shown(path.string()), what));
}

}  // namespace

Result<JournalWriter> JournalWriter::create(const Checkpoint& checkpoint, bool prove) {
    // Named from the start, so that the next apply can tell that this one was interrupted.
    WISP_ASSIGN(PendingFile file,
                PendingFile::create(journal_path(checkpoint.path()), PendingFile::Until::kVisible));
    JournalWriter writer(std::move(file));
    Bytes head;
    append_text(head, kMagic);
    head.resize(head.size() + kDigestsBytes);
    WISP_TRY(writer.file_.append(head));
    Bytes files;
    files.push_back(static_cast<std::byte>(prove ? 1 : 0));
    append_varint(files, checkpoint.files().size());
    for (const CheckpointFile& listed : checkpoint.files()) {
        const std::string name = listed.path.filename().string();
        append_varint(files, name.size());
        append_text(files, name);
        append_fixed(files, listed.size_bytes);
    }
    WISP_TRY(writer.append(files));
    return writer;
}

Result<void> JournalWriter::append(const Bytes& bytes) {
    hash_.add(bytes);
    return file_.append(bytes);
}

Result<void> JournalWriter::add(std::size_t file, std::uint64_t block_offset,
                                const BlockChanges& changes) {
    if (changes.empty()) return {};
    Bytes record;
    record.push_back(static_cast<std::byte>(changes.element_bytes));
    append_varint(record, file);
    append_fixed(record, block_offset);
    append_fixed(record, static_cast<std::uint32_t>(changes.count()));
    const auto positions = std::as_bytes(std::span(changes.positions));
    record.insert(record.end(), positions.begin(), positions.end());
    record.insert(record.end(), changes.old_bits.begin(), changes.old_bits.end());
    record.insert(record.end(), changes.new_bits.begin(), changes.new_bits.end());
    return append(record);
}

Result<void> JournalWriter::finish(const StateDigest& base, const StateDigest& result) {
    WISP_TRY(append({std::byte{0}}));
    const Bytes digests = digest_bytes(base, result);
    // The digests stand in front but are hashed last: they are known only now.
    hash_.add(digests);
    WISP_TRY(file_.append(hash_.finish()));
    WISP_TRY(write_at(file_.handle(), kDigestsOffset, digests, file_.path()));
    return file_.commit();
}

Result<Journal> Journal::open(const fs::path& checkpoint,
                              const std::vector<CheckpointFile>& files) {
    const fs::path path = journal_path(checkpoint);
    Journal journal;
    WISP_ASSIGN(journal.mapped_, MappedFile::open(path));
    const auto all = journal.mapped_.bytes();
    if (all.size() < kMagic.size() + kDigestsBytes + kHashBytes) return damaged(path, "cut off");
    ByteReader in(all.first(all.size() - kHashBytes));
    if (in.text(kMagic.size()) != kMagic) return damaged(path, "not a journal of this version");
    const auto digests = in.take(kDigestsBytes);
    const auto body = all.subspan(kMagic.size() + kDigestsBytes,
                                  all.size() - kMagic.size() - kDigestsBytes - kHashBytes);
    const Sha256Digest hash = Sha256().add(body).add(digests).finish();
    if (!std::ranges::equal(hash, all.last(kHashBytes))) return damaged(path, "its bytes changed");
    ByteReader words(digests);
    journal.base_ = {words.fixed<std::uint64_t>(), words.fixed<std::uint64_t>()};
    journal.result_ = {words.fixed<std::uint64_t>(), words.fixed<std::uint64_t>()};
    journal.prove_ = in.fixed<std::uint8_t>() != 0;
    if (in.varint() != files.size()) return damaged(path, "it lists other files");
    for (const CheckpointFile& file : files) {
        const auto name = in.text(in.varint());
        const auto size = in.fixed<std::uint64_t>();
        if (!in.ok() || name != file.path.filename().string() || size != file.size_bytes) {
            return damaged(path, "it lists other files");
        }
        journal.file_sizes_.push_back(size);
    }
    journal.records_ = in.take(in.remaining());
    return journal;
}

Result<void> Journal::for_each(const std::function<Result<void>(const Record&)>& take) const {
    ByteReader in(records_);
    const auto bad = [] { return fail(ErrorKind::kCorrupt, "journal: a record is out of bounds"); };
    while (const unsigned width = in.fixed<std::uint8_t>()) {
        Record record;
        record.width = width;
        const std::uint64_t file = in.varint();
        record.block_offset = in.fixed<std::uint64_t>();
        const std::uint64_t count = in.fixed<std::uint32_t>();
        record.positions = in.take(count * 4);
        record.old_bits = in.take(count * width);
        record.new_bits = in.take(count * width);
        if (!in.ok() || count == 0 || file >= file_sizes_.size() || width > 8) return bad();
        record.file = static_cast<std::size_t>(file);
        std::uint64_t last = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto position = load_le<std::uint32_t>(record.positions.data() + i * 4);
            if (i > 0 && position <= last) return bad();
            last = position;
        }
        const std::uint64_t size = file_sizes_[record.file];
        if (record.block_offset > size || (last + 1) * width > size - record.block_offset) {
            return bad();
        }
        WISP_TRY(take(record));
    }
    if (!in.ok() || !in.at_end()) return bad();
    return {};
}

bool sweep_unfinished_journals(const fs::path& checkpoint) {
    const fs::path path = journal_path(checkpoint);
    const std::string lead = "." + path.filename().string() + ".";
    std::vector<fs::path> unfinished;
    std::error_code error;
    for (const auto& item : fs::directory_iterator(folder_of(path), error)) {
        if (item.path().filename().string().starts_with(lead)) unfinished.push_back(item.path());
    }
    for (const fs::path& file : unfinished) fs::remove(file, error);
    return !unfinished.empty();
}

}  // namespace wisp
