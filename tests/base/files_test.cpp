#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "base/file.hpp"
#include "base/spool.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

TEST(PendingFile, LeavesNothingBehindUnlessCommitted) {
    const TempFolder folder;
    {
        PendingFile file = value_of(PendingFile::create(folder / "out"));
        value_of(file.append(as_bytes("half")));
        EXPECT_FALSE(fs::exists(folder / "out"));
    }
    EXPECT_EQ(folder.file_count(), 0U);
}

TEST(PendingFile, NeverTakesTheMaskAwayFromOtherThreads) {
    const TempFolder folder;
    const mode_t before = ::umask(077);
    std::atomic<bool> done = false;
    std::jthread creator([&] {
        for (int i = 0; i < 2000; ++i) {
            value_of(PendingFile::create(folder / "out", PendingFile::Until::kVisible));
        }
        done = true;
    });
    bool open_to_others = false;
    while (!done) {
        const FileHandle file(::open((folder / "mine").c_str(), O_WRONLY | O_CREAT, 0666));
        struct stat info{};
        ::fstat(file.get(), &info);
        open_to_others = open_to_others || (info.st_mode & 077) != 0;
        fs::remove(folder / "mine");
    }
    creator.join();
    ::umask(before);
    EXPECT_FALSE(open_to_others);
}

TEST(PendingFile, IsAsReadableAsAnyOther) {
    const TempFolder folder;
    const mode_t before = ::umask(027);
    for (const auto until : {PendingFile::Until::kUnnamed, PendingFile::Until::kVisible}) {
        PendingFile file = value_of(PendingFile::create(folder / "out", until));
        value_of(file.commit());
        struct stat info{};
        ASSERT_EQ(::stat((folder / "out").c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 0777, 0640U);
    }
    ::umask(before);
}

TEST(PendingFile, AppearsUnderItsNameWhenCommitted) {
    const TempFolder folder;
    {
        PendingFile file = value_of(PendingFile::create(folder / "out"));
        value_of(file.reserve(7));
        value_of(file.append(as_bytes("abc")));
        value_of(file.append(as_bytes("defg")));
        EXPECT_EQ(file.size_bytes(), 7U);
        EXPECT_FALSE(fs::exists(folder / "out"));
        value_of(file.commit());
    }
    EXPECT_EQ(folder.file_count(), 1U);
    const auto bytes = as_bytes("abcdefg");
    EXPECT_EQ(read_bytes(folder / "out"), Bytes(bytes.begin(), bytes.end()));
}

TEST(PendingFile, ReplacesAnOldFileOnlyOnCommit) {
    const TempFolder folder;
    write_bytes(folder / "out", as_bytes("old"));
    PendingFile file = value_of(PendingFile::create(folder / "out"));
    value_of(file.append(as_bytes("new!")));
    EXPECT_EQ(fs::file_size(folder / "out"), 3U);
    value_of(file.commit());
    EXPECT_EQ(fs::file_size(folder / "out"), 4U);
}

TEST(PendingFile, MovesWithoutLosingItsFile) {
    const TempFolder folder;
    {
        PendingFile first = value_of(PendingFile::create(folder / "one"));
        PendingFile second = value_of(PendingFile::create(folder / "two"));
        first = std::move(second);
        value_of(first.commit());
        EXPECT_TRUE(fs::exists(folder / "two"));
    }
    EXPECT_EQ(folder.file_count(), 1U);
}

TEST(PendingFile, RefusesAFolderAsItsName) {
    const TempFolder folder;
    EXPECT_EQ(outcome_of(PendingFile::create(folder.path())), "invalid");
    EXPECT_EQ(outcome_of(PendingFile::create(folder / "none" / "out")), "not_found");
}

TEST(MappedFile, SeesTheWholeFile) {
    const TempFolder folder;
    write_bytes(folder / "f", as_bytes("content"));
    write_bytes(folder / "empty", {});
    EXPECT_EQ(value_of(MappedFile::open(folder / "f")).bytes().size(), 7U);
    EXPECT_TRUE(value_of(MappedFile::open(folder / "empty")).bytes().empty());
    EXPECT_EQ(outcome_of(MappedFile::open(folder / "none")), "not_found");
    EXPECT_EQ(outcome_of(MappedFile::open(folder.path())), "invalid");
    EXPECT_EQ(outcome_of(MappedFile::open("/dev/null")), "invalid");
}

TEST(FileErrors, AreNamedByTheirCure) {
    const std::vector<std::pair<int, ErrorKind>> kinds = {
        {ENOSPC, ErrorKind::kNoSpace},  {EDQUOT, ErrorKind::kNoSpace},
        {EACCES, ErrorKind::kDenied},   {EROFS, ErrorKind::kDenied},
        {ENOENT, ErrorKind::kNotFound}, {EISDIR, ErrorKind::kInvalid},
        {EIO, ErrorKind::kUnavailable}};
    for (const auto& [number, kind] : kinds) {
        EXPECT_EQ(file_error("write", "x", number).kind, kind) << number;
    }
}

TEST(ReadAt, RefusesAFileThatEndsTooEarly) {
    const TempFolder folder;
    write_bytes(folder / "f", as_bytes("12345678"));
    const FileHandle file = value_of(open_for_update(folder / "f"));
    Bytes room(9);
    EXPECT_EQ(outcome_of(read_at(file, 0, room, "f")), "corrupt");
    EXPECT_EQ(outcome_of(read_at(file, 100, room, "f")), "corrupt");
    room.resize(8);
    EXPECT_EQ(outcome_of(read_at(file, 0, room, "f")), "ok");
}

Bytes drained(Spool& spool) {
    Bytes all;
    value_of(spool.drain([&](std::span<const std::byte> piece) -> Result<void> {
        EXPECT_EQ(all.size() % 8, 0U) << "only the last piece may be odd";
        all.insert(all.end(), piece.begin(), piece.end());
        return {};
    }));
    return all;
}

TEST(Spool, GivesBackMoreThanItsBuffer) {
    const TempFolder folder;
    Rng rng(3);
    Spool spool = value_of(Spool::create(folder.path()));
    for (int round = 0; round < 2; ++round) {
        Bytes expected;
        for (const std::size_t size : {10U, 1'000'000U, 0U, 100'003U, 3'000'001U, 5U, 900'000U}) {
            const Bytes piece = random_block(traits_of(Dtype::kU8), Content::kRandom, size, rng);
            value_of(spool.append(piece));
            expected.insert(expected.end(), piece.begin(), piece.end());
        }
        EXPECT_EQ(spool.size_bytes(), expected.size());
        EXPECT_TRUE(drained(spool) == expected);
        EXPECT_TRUE(drained(spool) == expected) << "draining takes nothing away";
        spool.clear();
        EXPECT_EQ(spool.size_bytes(), 0U);
        EXPECT_TRUE(drained(spool).empty());
    }
    EXPECT_EQ(folder.file_count(), 0U) << "the file it waits in has no name";
}

TEST(Spool, KeepsLittleInMemory) {
    const TempFolder folder;
    Spool spool = value_of(Spool::create(folder / "there is no such folder"));
    value_of(spool.append(as_bytes("small")));
    EXPECT_EQ(drained(spool).size(), 5U);
}

TEST(Spool, HandsOnTheErrorOfItsTaker) {
    const TempFolder folder;
    Spool spool = value_of(Spool::create(folder.path()));
    value_of(spool.append(Bytes(3'000'000)));
    EXPECT_EQ(outcome_of(spool.drain([](std::span<const std::byte>) -> Result<void> {
                  return fail(ErrorKind::kNoSpace, "full");
              })),
              "no_space");
}

}  // namespace
}  // namespace wisp::testing
