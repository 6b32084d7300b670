// Publishing in the background.
//
// submit() returns as soon as what changed is known; when uploads lag, waiting steps are folded
// into the newest. What fails is tried again after a pause, and again after longer ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "wisp/publisher.hpp"

namespace wisp {

class PublishWorker;

class AsyncPublisher {
  public:
    using Done = std::function<Result<void>(const Result<PublishReport>&)>;
    /// `done` is told of every commit and failure, on the uploading thread; what it fails with, the
    /// next submit() or flush() answers with. If commits expire, the thread writes heartbeats while
    /// nothing is submitted, and tells of them as kHeartbeat.
    static Result<AsyncPublisher> start(Publisher publisher, Done done = {});
    AsyncPublisher(AsyncPublisher&&) noexcept;
    AsyncPublisher& operator=(AsyncPublisher&&) noexcept;
    /// Waits for the upload under way; what still waits is dropped, so flush() first.
    ~AsyncPublisher();

    struct Submitted {
        bool folded = false;  // an earlier step that had not been uploaded yet went into this one
        double blocked_seconds = 0;
    };
    /// Waits for memory alone, never for the store; but a first state and another schema are
    /// uploaded before it returns. kFenced as publish(); other failures of earlier steps are tried
    /// again. Whatever the failure, flush() fails until a later step is committed.
    Result<Submitted> submit(const Weights& weights, std::uint64_t step);
    Result<Submitted> submit(WeightStream& weights, std::uint64_t step);
    /// kWrongBase when the changes are not against the baseline: submit the weights instead.
    Result<Submitted> submit(ChangeStream& changes, std::uint64_t step);
    /// For a step that could not even be handed over: flush() fails with it from now on, until a
    /// later one is committed.
    void miss(std::uint64_t step, const Error& why);

    /// Waits until the last submitted step, or a later one that contains it, is committed. At the
    /// first failure it says which step is not, and why; trying goes on all the same.
    Result<void> flush();
    /// As flush(), but waits through failures until the time is over.
    Result<void> flush_within(Milliseconds time);
    /// The last submitted step, if it is not committed: flush() would wait for it, or fail.
    std::optional<std::uint64_t> uncommitted() const;
    /// Drops what waits, and says whether the upload under way ended within the time.
    bool stop_within(Milliseconds time);

  private:
    explicit AsyncPublisher(std::unique_ptr<PublishWorker> worker);
    std::unique_ptr<PublishWorker> worker_;
};

}  // namespace wisp
