#include "publish_checks.hpp"

#include <fmt/format.h>

#include "schema_difference.hpp"

namespace wisp::cli {
Result<void> refuse_delta(const std::filesystem::path& checkpoint) {
    std::error_code error;
    if (std::filesystem::is_directory(checkpoint, error)) return {};
    const auto found = inspect(checkpoint);
    // What is broken is told when it is opened as a checkpoint.
    if (!found || !found->is_delta()) return {};
    return fail(ErrorKind::kInvalid,
                fmt::format("{} is a delta, not a checkpoint; apply it first with 'wisp apply BASE "
                            "{} -o CHECKPOINT', and publish that",
                            printable(checkpoint.string()), printable(checkpoint.string())));
}

Result<void> check_intent(const PublishIntent& intent, const Checkpoint& checkpoint,
                          const Publisher& publisher, const Replica& baseline) {
    const Weights* held = baseline.weights();
    const ReplicaRecord& at = publisher.at();
    if (held == nullptr || at.state_seq == 0) return {};
    const std::string differs = schema_difference(held->schema(), checkpoint.schema());
    if (!differs.empty() && !intent.allow_schema_change) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} holds other tensors than the run: {}; publish a checkpoint "
                                "like the ones before, or pass --allow-schema-change if every "
                                "replica is to become this one",
                                printable(checkpoint.path().string()), differs));
    }
    if (intent.rewind || intent.step > at.step) return {};
    if (differs.empty() && intent.step == at.step) {
        // Publishing the same once more, after an answer that was lost, is no rewind.
        const auto digest = digest_of(checkpoint);
        if (!digest) return std::unexpected(digest.error());
        if (*digest == at.state) return {};
    }
    return fail(ErrorKind::kInvalid,
                fmt::format("step {} is not after step {}, the newest of the run; leave --step "
                            "out to publish as the next one, or pass --rewind if training was set "
                            "back and replicas are to follow",
                            intent.step, at.step));
}

}  // namespace wisp::cli
