#include "delta/journal.hpp"

#include <gtest/gtest.h>

#include "checkpoint/journal_path.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

BlockChanges bytes_changed(std::vector<std::uint32_t> positions, int before, int after) {
    BlockChanges changes;
    changes.positions = std::move(positions);
    changes.old_bits.assign(changes.count(), static_cast<std::byte>(before));
    changes.new_bits.assign(changes.count(), static_cast<std::byte>(after));
    return changes;
}

class JournalOf : public ::testing::Test {
  protected:
    void SetUp() override {
        path_ = folder_ / "m.safetensors";
        write_bytes(path_, safetensors_file({{{"t", Dtype::kU8, {200'000}}, Bytes(200'000)}}));
        checkpoint_.emplace(value_of(Checkpoint::open(path_)));
    }
    std::uint64_t data_offset() const { return checkpoint_->files()[0].data_offset; }
    void write_journal(const std::vector<BlockChanges>& blocks, std::uint64_t stride = 100'000) {
        JournalWriter writer = value_of(JournalWriter::create(*checkpoint_, true));
        std::uint64_t at = data_offset();
        for (const BlockChanges& block : blocks) {
            value_of(writer.add(0, at, block));
            at += stride;
        }
        value_of(writer.finish({1, 2}, {3, 4}));
    }
    Result<Journal> open() const { return Journal::open(path_, checkpoint_->files()); }
    std::vector<std::size_t> nonzero() const {
        const Bytes file = read_bytes(path_);
        std::vector<std::size_t> found;
        for (std::size_t i = data_offset(); i < file.size(); ++i) {
            if (file[i] != std::byte{0}) found.push_back(i - data_offset());
        }
        return found;
    }
    TempFolder folder_;
    fs::path path_;
    std::optional<Checkpoint> checkpoint_;
};

TEST_F(JournalOf, IsReadBack) {
    write_journal({bytes_changed({0, 5, 99'999}, 0, 7), {}, bytes_changed({3}, 1, 2)}, 50'000);
    const Journal journal = value_of(open());
    EXPECT_EQ(journal.base(), (StateDigest{1, 2}));
    EXPECT_EQ(journal.result(), (StateDigest{3, 4}));
    EXPECT_TRUE(journal.prove());
    std::vector<Journal::Record> records;
    value_of(journal.for_each([&](const Journal::Record& record) -> Result<void> {
        records.push_back(record);
        return {};
    }));
    ASSERT_EQ(records.size(), 2U) << "blocks without changes leave no record";
    EXPECT_EQ(records[0].block_offset, data_offset());
    EXPECT_EQ(records[0].positions.size(), 12U);
    EXPECT_EQ(records[0].new_bits[2], std::byte{7});
    EXPECT_EQ(records[1].block_offset, data_offset() + 100'000);
    EXPECT_EQ(records[1].old_bits[0], std::byte{1});
}

TEST_F(JournalOf, RemembersWhetherToProve) {
    JournalWriter writer = value_of(JournalWriter::create(*checkpoint_, false));
    value_of(writer.finish({}, {}));
    EXPECT_FALSE(value_of(open()).prove());
}

TEST_F(JournalOf, HasNoNameUntilItIsFinished) {
    {
        JournalWriter writer = value_of(JournalWriter::create(*checkpoint_, true));
        value_of(writer.add(0, data_offset(), bytes_changed({1}, 0, 1)));
        EXPECT_FALSE(fs::exists(journal_path(path_)));
    }
    EXPECT_EQ(folder_.file_count(), 1U) << "given up, it leaves nothing";
}

TEST_F(JournalOf, IsRefusedWithAnyByteDamagedOrMissing) {
    write_journal({bytes_changed({1, 2}, 0, 1)});
    const Bytes good = read_bytes(journal_path(path_));
    for (std::size_t i = 0; i < good.size(); ++i) {
        Bytes damaged = good;
        damaged[i] ^= std::byte{0x40};
        write_bytes(journal_path(path_), damaged);
        ASSERT_EQ(outcome_of(open()), "corrupt") << "byte " << i;
        write_bytes(journal_path(path_), std::span(good).first(i));
        ASSERT_EQ(outcome_of(open()), "corrupt") << "cut at " << i;
    }
    write_bytes(journal_path(path_), good);
    EXPECT_EQ(outcome_of(open()), "ok");
}

TEST_F(JournalOf, BelongsToFilesOfTheSameNameAndSize) {
    write_journal({bytes_changed({1, 2}, 0, 1)});
    std::vector<CheckpointFile> files = checkpoint_->files();
    files[0].size_bytes += 1;
    EXPECT_EQ(outcome_of(Journal::open(path_, files)), "corrupt");
    files = checkpoint_->files();
    files[0].path = folder_ / "other.safetensors";
    EXPECT_EQ(outcome_of(Journal::open(path_, files)), "corrupt");
    files.push_back(files[0]);
    EXPECT_EQ(outcome_of(Journal::open(path_, files)), "corrupt");
}

TEST_F(JournalOf, WritesEitherSideAsOftenAsNeeded) {
    // Near ones are written together, far ones apart; the last byte of the file is among them.
    write_journal({bytes_changed({0, 1, 70'000, 99'999}, 0, 7), bytes_changed({99'999}, 0, 9)});
    const std::vector<std::size_t> touched = {0, 1, 70'000, 99'999, 199'999};
    const Journal journal = value_of(open());
    const auto size = fs::file_size(path_);
    for (int round = 0; round < 2; ++round) {
        value_of(replay(journal, checkpoint_->files(), JournalSide::kNew));
        EXPECT_EQ(nonzero(), touched);
    }
    for (int round = 0; round < 2; ++round) {
        value_of(replay(journal, checkpoint_->files(), JournalSide::kOld));
        EXPECT_TRUE(nonzero().empty());
    }
    EXPECT_EQ(fs::file_size(path_), size);
}

TEST_F(JournalOf, RefusesRecordsOutsideTheFile) {
    write_journal({bytes_changed({100'000}, 0, 1), bytes_changed({100'000}, 0, 1)});
    const Journal journal = value_of(open());
    EXPECT_EQ(outcome_of(replay(journal, checkpoint_->files(), JournalSide::kNew)), "corrupt");
}

TEST_F(JournalOf, RefusesPositionsThatDoNotAscend) {
    write_journal({bytes_changed({5, 5}, 0, 1)});
    const Journal journal = value_of(open());
    EXPECT_EQ(outcome_of(replay(journal, checkpoint_->files(), JournalSide::kNew)), "corrupt");
    EXPECT_TRUE(nonzero().empty());
}

TEST_F(JournalOf, SweepsOnlyHalfWrittenJournals) {
    write_journal({bytes_changed({1}, 0, 1)});
    write_bytes(folder_ / ".m.safetensors.wisp-journal.AbCdEf", as_bytes("half"));
    write_bytes(folder_ / ".other.safetensors.wisp-journal.AbCdEf", as_bytes("half"));
    EXPECT_TRUE(sweep_unfinished_journals(path_));
    EXPECT_FALSE(fs::exists(folder_ / ".m.safetensors.wisp-journal.AbCdEf"));
    EXPECT_TRUE(fs::exists(folder_ / ".other.safetensors.wisp-journal.AbCdEf"));
    EXPECT_TRUE(fs::exists(journal_path(path_)));
    EXPECT_FALSE(sweep_unfinished_journals(path_));
}

TEST(JournalPath, LiesBesideAFileAndInsideAFolder) {
    const TempFolder folder;
    EXPECT_EQ(journal_path(folder / "m.safetensors"), folder / "m.safetensors.wisp-journal");
    EXPECT_EQ(journal_path(folder.path()), folder / ".wisp-journal");
    EXPECT_EQ(journal_path("m.safetensors").filename(), "m.safetensors.wisp-journal");
}

}  // namespace
}  // namespace wisp::testing
