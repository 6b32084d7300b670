#include "doubles/fault_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "store/store_keys.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kEndlessBytes = std::uint64_t{1} << 50;

Error unavailable(StoreOperation operation, const std::string& key, std::string_view why) {
    return {ErrorKind::kUnavailable,
            fmt::format("{} of {}: {}; try again", name_of(operation), shown(key), why)};
}

std::uint64_t history_depth(const FaultPlan& plan) {
    const bool stale = plan.stale_read > 0 || plan.stale_list > 0;
    return std::max(stale ? plan.stale_operations : 0, plan.race_operations);
}

std::size_t read_from(const PastObject& object, std::uint64_t offset, std::span<std::byte> into) {
    if (offset >= object.bytes.size()) return 0;
    const auto part = std::span(object.bytes).subspan(offset);
    const std::size_t count = std::min(part.size(), into.size());
    std::ranges::copy(part.first(count), into.begin());
    return count;
}

}  // namespace

Trouble SeededFaults::decide(StoreOperation operation, const std::string&) {
    const std::lock_guard lock(mutex_);
    Trouble trouble;
    // Always the same number of draws, so that one fault more does not shift all that follow.
    trouble.slow = random_.chance(plan_.slow);
    trouble.fail_before = random_.chance(plan_.fail_before);
    trouble.throttle = random_.chance(plan_.throttle);
    trouble.reply_lost = random_.chance(plan_.reply_lost);
    const bool stale_list = random_.chance(plan_.stale_list);
    const bool stale_read = random_.chance(plan_.stale_read);
    trouble.stale = operation == StoreOperation::kList ? stale_list : stale_read;
    trouble.truncated = random_.chance(plan_.truncated_read);
    trouble.flipped = random_.chance(plan_.flipped_bit);
    trouble.oversized = random_.chance(plan_.oversized_read);
    trouble.detail = random_.next();
    return trouble;
}

FaultStore::FaultStore(std::shared_ptr<Store> inner, const FaultPlan& plan, std::uint64_t seed,
                       std::shared_ptr<Clock> clock)
    : FaultStore(std::move(inner), plan, std::make_shared<SeededFaults>(plan, seed),
                 std::make_shared<ObjectHistory>(history_depth(plan)), std::move(clock)) {}

FaultStore::FaultStore(std::shared_ptr<Store> inner, const FaultPlan& plan,
                       std::shared_ptr<FaultPolicy> policy, std::shared_ptr<ObjectHistory> history,
                       std::shared_ptr<Clock> clock)
    : inner_(std::move(inner)),
      plan_(plan),
      policy_(std::move(policy)),
      history_(std::move(history)),
      clock_(std::move(clock)) {}

Trouble FaultStore::meet(StoreOperation operation, const std::string& key) {
    history_->count_operation();
    if (healed_) return {};
    const Trouble trouble = policy_->decide(operation, key);
    if (trouble.slow) clock_->sleep_for(plan_.slow_for);
    return trouble;
}

template <class Call>
auto FaultStore::troubled(StoreOperation operation, const std::string& key, Call call) {
    const Trouble trouble = meet(operation, key);
    decltype(call(trouble)) refusal = std::unexpected(unavailable(operation, key, "it failed"));
    if (trouble.throttle) {
        refusal.error() = unavailable(operation, key, "slow down");
        refusal.error().retry_after_ms = plan_.retry_after_ms;
    }
    if (trouble.fail_before || trouble.throttle) {
        ++faults_;
        return refusal;
    }
    auto result = call(trouble);
    if (!trouble.reply_lost) return result;
    ++faults_;
    refusal.error() = unavailable(operation, key, "the reply was lost");
    return refusal;
}

std::uint64_t FaultStore::lag_of(const Trouble& trouble) const {
    return 1 + trouble.detail % std::max<std::uint64_t>(plan_.stale_operations, 1);
}

std::optional<ObjectHistory::Answer> FaultStore::past(const std::string& key,
                                                      const Trouble& trouble) {
    if (!trouble.stale) return std::nullopt;
    auto answer = history_->as_of(key, lag_of(trouble));
    if (answer) ++faults_;
    return answer;
}

Result<void> FaultStore::put(const std::string& key, std::span<const std::byte> bytes) {
    WISP_TRY(check_key(key));
    return troubled(StoreOperation::kPut, key, [&](const Trouble&) {
        return history_->remember(*inner_, key, [&] { return inner_->put(key, bytes); });
    });
}

Result<Created> FaultStore::create(const std::string& key, std::span<const std::byte> bytes) {
    WISP_TRY(check_key(key));
    return troubled(StoreOperation::kCreate, key, [&](const Trouble&) -> Result<Created> {
        if (plan_.creation != Creation::kExclusive) return create_loosely(key, bytes);
        return history_->remember(*inner_, key, [&] { return inner_->create(key, bytes); });
    });
}

Result<Created> FaultStore::create_loosely(const std::string& key,
                                           std::span<const std::byte> bytes) {
    if (plan_.creation == Creation::kRacy) {
        bool there = inner_->head(key).has_value();
        if (there && plan_.race_operations > 0) {
            const auto before = history_->as_of(key, plan_.race_operations);
            there = !before || before->object.has_value();
        }
        if (there) return Created::kAlreadyThere;
        clock_->sleep_for(plan_.race_window);
    }
    WISP_TRY(history_->remember(*inner_, key, [&] { return inner_->put(key, bytes); }));
    return Created::kNew;
}

Result<std::size_t> FaultStore::read(const std::string& key, std::uint64_t offset,
                                     std::span<std::byte> into) {
    WISP_TRY(check_key(key));
    return troubled(StoreOperation::kRead, key, [&](const Trouble& trouble) -> Result<std::size_t> {
        std::size_t count = 0;
        if (const auto answer = past(key, trouble)) {
            if (!answer->object) return std::unexpected(no_such_object(key));
            count = read_from(*answer->object, offset, into);
        } else {
            WISP_ASSIGN(count, inner_->read(key, offset, into));
        }
        if (trouble.truncated && count > 0) {
            ++faults_;
            count = trouble.detail % count;
        }
        if (trouble.oversized && count < into.size()) {
            ++faults_;
            std::ranges::fill(into.subspan(count), std::byte{0xEE});
            count = into.size();
        }
        if (trouble.flipped && count > 0) {
            ++faults_;
            into[trouble.detail / 8 % count] ^= std::byte{1} << (trouble.detail % 8);
        }
        return count;
    });
}

Result<ObjectInfo> FaultStore::head(const std::string& key) {
    WISP_TRY(check_key(key));
    return troubled(StoreOperation::kHead, key, [&](const Trouble& trouble) -> Result<ObjectInfo> {
        ObjectInfo info;
        if (const auto answer = past(key, trouble)) {
            if (!answer->object) return std::unexpected(no_such_object(key));
            info = {answer->object->bytes.size(), answer->object->modified_ms};
        } else {
            WISP_ASSIGN(info, inner_->head(key));
        }
        if (trouble.oversized) {
            ++faults_;
            info.size_bytes += 1 + trouble.detail % kEndlessBytes;
        }
        return info;
    });
}

Result<void> FaultStore::remove(const std::string& key) {
    WISP_TRY(check_key(key));
    return troubled(StoreOperation::kRemove, key, [&](const Trouble&) {
        return history_->remember(*inner_, key, [&] { return inner_->remove(key); });
    });
}

Result<std::vector<ListedObject>> FaultStore::list(const std::string& prefix,
                                                   const std::string& after, std::size_t limit) {
    using Listing = std::vector<ListedObject>;
    return troubled(StoreOperation::kList, prefix, [&](const Trouble& trouble) -> Result<Listing> {
        if (!trouble.stale) return inner_->list(prefix, after, limit);
        const auto changed = history_->changed_since(lag_of(trouble));
        // Enough that the limit is still met when all that is new is taken away.
        WISP_ASSIGN(const Listing now, inner_->list(prefix, after, limit + changed.size()));
        std::map<std::string, ObjectInfo> then;
        for (const ListedObject& object : now) then[object.key] = object.info;
        for (const auto& [key, answer] : changed) {
            if (!key.starts_with(prefix) || key <= after) continue;
            ++faults_;
            if (!answer.object) {
                then.erase(key);
            } else {
                then[key] = {answer.object->bytes.size(), answer.object->modified_ms};
            }
        }
        Listing listed;
        for (const auto& [key, info] : then) {
            if (listed.size() < limit) listed.push_back({key, info});
        }
        return listed;
    });
}

Result<std::int64_t> FaultStore::now_ms() {
    return troubled(StoreOperation::kNow, "", [&](const Trouble&) { return inner_->now_ms(); });
}

}  // namespace wisp
