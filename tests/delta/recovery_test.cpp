// What an interrupted in-place apply leaves behind, and what comes of it.
#include "checkpoint/journal_path.hpp"
#include "checkpoint_steps.hpp"
#include "delta/journal.hpp"
#include "kernel/kernels.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

class InterruptedApply : public ::testing::Test {
  protected:
    fs::path path() const { return steps_.state(0); }

    /// A committed journal from state 0 to state 1 of which nothing has been written yet.
    void commit_journal(const StateDigest& result, bool prove = true) const {
        const Checkpoint base = value_of(Checkpoint::open(path()));
        JournalWriter writer = value_of(JournalWriter::create(base, prove));
        for (std::size_t t = 0; t < steps_.tensors(0).size(); ++t) {
            const Bytes& before = steps_.tensors(0)[t].bytes;
            const Bytes& after = steps_.tensors(1)[t].bytes;
            BlockChanges changes;
            changes.element_bytes = traits_of(steps_.tensors(0)[t].info.dtype).element_bytes;
            changes.positions.resize(before.size() / changes.element_bytes);
            changes.positions.resize(
                kReferenceKernels.scan(before.data(), after.data(), changes.positions.size(),
                                       changes.element_bytes, changes.positions.data(), {}));
            gather_bits(before.data(), after.data(), changes);
            value_of(writer.add(base.place(t).file, base.place(t).offset, changes));
        }
        value_of(writer.finish(steps_.digest(0), result));
    }

    CheckpointSteps steps_{3};
};

TEST_F(InterruptedApply, IsFinishedFromACommittedJournal) {
    commit_journal(steps_.digest(1));
    EXPECT_EQ(value_of(recover(path())), Recovery::kFinished);
    EXPECT_TRUE(steps_.holds(path(), 1));
    EXPECT_FALSE(fs::exists(journal_path(path())));
    EXPECT_EQ(value_of(recover(path())), Recovery::kNone);
}

TEST_F(InterruptedApply, IsFinishedWhenHalfOfItWasWritten) {
    commit_journal(steps_.digest(1));
    // The first half of the file is already new.
    Bytes half = read_bytes(path());
    const Bytes after = read_bytes(steps_.state(1));
    ASSERT_EQ(half.size(), after.size());
    std::copy_n(after.begin(), half.size() / 2, half.begin());
    write_bytes(path(), half);
    EXPECT_EQ(value_of(recover(path())), Recovery::kFinished);
    EXPECT_TRUE(steps_.holds(path(), 1));
}

TEST_F(InterruptedApply, IsFinishedBeforeTheNextApply) {
    commit_journal(steps_.digest(1));
    const ApplyReport report = value_of(apply_in_place(path(), {steps_.delta(1, 2)}));
    EXPECT_EQ(report.recovery, Recovery::kFinished);
    EXPECT_TRUE(steps_.holds(path(), 2));
}

TEST_F(InterruptedApply, IsFinishedWithoutProofWhenNoneWasTaken) {
    commit_journal({}, false);
    EXPECT_EQ(value_of(recover(path())), Recovery::kFinished);
    EXPECT_TRUE(steps_.holds(path(), 1));
}

TEST_F(InterruptedApply, IsUndoneWhenItsResultIsNotWhatItSays) {
    commit_journal(steps_.digest(2));
    EXPECT_EQ(value_of(recover(path())), Recovery::kUndone);
    EXPECT_TRUE(steps_.holds(path(), 0));
    EXPECT_FALSE(fs::exists(journal_path(path())));
}

TEST_F(InterruptedApply, IsDroppedWhenItsJournalWasOnlyHalfWritten) {
    const fs::path half = journal_path(path()).parent_path() /
                          ("." + journal_path(path()).filename().string() + ".x1Y2z3");
    write_bytes(half, as_bytes("WISPJRN1"));
    EXPECT_EQ(value_of(recover(path())), Recovery::kUndone);
    EXPECT_FALSE(fs::exists(half));
    EXPECT_TRUE(steps_.holds(path(), 0));
}

TEST_F(InterruptedApply, IsRefusedWithADamagedJournal) {
    commit_journal(steps_.digest(1));
    Bytes journal = read_bytes(journal_path(path()));
    journal[journal.size() / 2] ^= std::byte{1};
    write_bytes(journal_path(path()), journal);
    EXPECT_EQ(outcome_of(recover(path())), "corrupt");
    EXPECT_EQ(outcome_of(apply_in_place(path(), {steps_.delta(1, 2)})), "corrupt");
    EXPECT_TRUE(fs::exists(journal_path(path()))) << "it is the only trace of what happened";
}

TEST_F(InterruptedApply, IsRefusedWhenTheCheckpointWasChangedSince) {
    commit_journal(steps_.digest(1));
    Bytes file = read_bytes(path());
    file.back() ^= std::byte{0x80};
    write_bytes(path(), file);
    EXPECT_EQ(outcome_of(recover(path())), "corrupt");
}

TEST_F(InterruptedApply, IsRecoveredInAFolderToo) {
    const fs::path folder = steps_.sharded(0);
    EXPECT_EQ(value_of(recover(folder)), Recovery::kNone);
    write_bytes(folder / "..wisp-journal.abcdef", as_bytes("half"));
    EXPECT_EQ(value_of(recover(folder)), Recovery::kUndone);
    EXPECT_FALSE(fs::exists(folder / "..wisp-journal.abcdef"));
}

}  // namespace
}  // namespace wisp::testing
