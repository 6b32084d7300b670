#include "sim/sim_store.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <limits>

#include "base/try.hpp"

namespace wisp::sim {
namespace {

constexpr std::size_t kLinesKept = 80;
constexpr std::uint64_t kAnyObjectSize = std::numeric_limits<std::uint32_t>::max();

std::string outcome(const Result<void>&) {
    return "done";
}
std::string outcome(const Result<Created>& result) {
    return *result == Created::kNew ? "new" : "already there";
}
std::string outcome(const Result<std::size_t>& result) {
    return fmt::format("{} bytes", *result);
}
std::string outcome(const Result<ObjectInfo>& result) {
    return fmt::format("{} bytes", result->size_bytes);
}
std::string outcome(const Result<std::vector<ListedObject>>& result) {
    return fmt::format("{} objects", result->size());
}
std::string outcome(const Result<std::int64_t>&) {
    return "told";
}

}  // namespace

void Trace::add(const std::string& actor, std::string what) {
    std::string line = fmt::format("{:6} {:10} {}", counted_++, actor, what);
    for (const char c : line) {
        fingerprint_ = (fingerprint_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    if (live_) fmt::print("{}\n", line);
    lines_.push_back(std::move(line));
    if (lines_.size() > kLinesKept) lines_.pop_front();
}

void Trace::print() const {
    if (live_) return;
    for (const std::string& line : lines_) fmt::print("{}\n", line);
}

std::optional<Bytes> TrueStore::current(const std::string& key) {
    auto bytes = read_whole(*this, key, kAnyObjectSize);
    return bytes ? std::optional(std::move(*bytes)) : std::nullopt;
}

Result<void> TrueStore::put(const std::string& key, std::span<const std::byte> bytes) {
    const auto before = current(key);
    WISP_TRY(MemoryStore::put(key, bytes));
    ledger_.wrote(key, before, bytes, author);
    return {};
}

Result<Created> TrueStore::create(const std::string& key, std::span<const std::byte> bytes) {
    WISP_ASSIGN(const Created created, MemoryStore::create(key, bytes));
    if (created == Created::kNew) ledger_.wrote(key, std::nullopt, bytes, author);
    return created;
}

Result<void> TrueStore::remove(const std::string& key) {
    const bool there = head(key).has_value();
    WISP_TRY(MemoryStore::remove(key));
    if (there) ledger_.removed(key);
    return {};
}

Bytes TrueStore::lose(const std::string& key) {
    Bytes bytes = current(key).value_or(Bytes());
    (void)MemoryStore::remove(key);
    return bytes;
}

void TrueStore::bring_back(const std::string& key, const Bytes& bytes) {
    (void)MemoryStore::create(key, bytes);
}

void LateWrites::send(std::uint64_t due_step, std::int64_t now_ms, std::function<void()> write) {
    waiting_.emplace(due_step, Sent{now_ms, std::move(write)});
}

std::optional<std::int64_t> LateWrites::oldest_ms() const {
    std::optional<std::int64_t> oldest;
    for (const auto& [due, sent] : waiting_) {
        oldest = std::min(oldest.value_or(sent.at_ms), sent.at_ms);
    }
    return oldest;
}

void LateWrites::arrive(std::uint64_t step) {
    while (!waiting_.empty() && waiting_.begin()->first <= step) {
        const auto write = std::move(waiting_.begin()->second.write);
        waiting_.erase(waiting_.begin());
        write();
    }
}

template <class Call>
auto SimStore::step(StoreOperation operation, const std::string& key, Call call,
                    std::function<void()> late) {
    using Answer = decltype(call());
    Answer answer = fail(ErrorKind::kUnavailable, fmt::format("{}: no answer", key));
    parts_.scheduler->point(actor_, true);
    if (actor_.dead) return answer;
    parts_.scheduler->hand_over(actor_);
    if (during_request) during_request();
    ++requests_;
    const bool sent_late = late && random_.chance(parts_.late_chance);
    std::string told = "no answer yet";
    if (sent_late) {
        const std::uint64_t due =
            parts_.scheduler->steps() + 1 + (random_.below(std::uint64_t{1} << random_.below(11)));
        parts_.late->send(due, parts_.scheduler->now_ms(),
                          [truth = parts_.truth, trace = parts_.trace, name = actor_.name,
                           whose = *parts_.author, late, operation, key] {
                              truth->author = whose;
                              trace->add(name, fmt::format("late {} {}", name_of(operation), key));
                              late();
                          });
    } else {
        answer = call();
        told = answer ? outcome(answer) : std::string(name_of(answer.error().kind));
    }
    parts_.trace->add(actor_.name, fmt::format("{} {}: {}", name_of(operation), key, told));
    parts_.scheduler->point(actor_, true);
    return answer;
}

Result<void> SimStore::put(const std::string& key, std::span<const std::byte> bytes) {
    // A follower says good-bye from its destructor, where nothing may throw.
    if (key.find("/replicas/") != std::string::npos) {
        return actor_.dead ? Result<void>(fail(ErrorKind::kUnavailable, "dead"))
                           : parts_.truth->put(key, bytes);
    }
    return step(
        StoreOperation::kPut, key, [&] { return parts_.faulty->put(key, bytes); },
        [truth = parts_.truth, key, copy = Bytes(bytes.begin(), bytes.end())] {
            (void)truth->put(key, copy);
        });
}

Result<Created> SimStore::create(const std::string& key, std::span<const std::byte> bytes) {
    return step(
        StoreOperation::kCreate, key, [&] { return parts_.faulty->create(key, bytes); },
        [truth = parts_.truth, key, copy = Bytes(bytes.begin(), bytes.end())] {
            (void)truth->create(key, copy);
        });
}

Result<std::size_t> SimStore::read(const std::string& key, std::uint64_t offset,
                                   std::span<std::byte> into) {
    return step(StoreOperation::kRead, key, [&] { return parts_.faulty->read(key, offset, into); });
}

Result<ObjectInfo> SimStore::head(const std::string& key) {
    // Whether the run is there is asked for before that good-bye, too.
    if (key.ends_with("/format.json")) {
        return actor_.dead ? Result<ObjectInfo>(fail(ErrorKind::kUnavailable, "dead"))
                           : parts_.truth->head(key);
    }
    return step(StoreOperation::kHead, key, [&] { return parts_.faulty->head(key); });
}

Result<void> SimStore::remove(const std::string& key) {
    std::function<void()> late;
    if (parts_.late_removes) late = [truth = parts_.truth, key] { (void)truth->remove(key); };
    return step(StoreOperation::kRemove, key, [&] { return parts_.faulty->remove(key); }, late);
}

Result<std::vector<ListedObject>> SimStore::list(const std::string& prefix,
                                                 const std::string& after, std::size_t limit) {
    return step(StoreOperation::kList, prefix,
                [&] { return parts_.faulty->list(prefix, after, limit); });
}

Result<std::int64_t> SimStore::now_ms() {
    return step(StoreOperation::kNow, "", [&] { return parts_.faulty->now_ms(); });
}

}  // namespace wisp::sim
