#include "maintain/store_probes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

constexpr std::string_view kOtherStore = "use another store, or a newer version of this one";
constexpr std::int64_t kDriftMs = 180'000;

Finding passed(std::string name, std::string detail) {
    return {std::move(name), Verdict::kPass, std::move(detail), ""};
}

Finding failed(std::string name, std::string detail, std::string_view cure = kOtherStore) {
    return {std::move(name), Verdict::kFail, std::move(detail), std::string(cure)};
}

Bytes numbered_bytes(std::size_t count, std::uint64_t seed) {
    Random random(seed);
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
    return bytes;
}

/// False also when it is not there.
bool holds(Store& store, const std::string& key, std::span<const std::byte> bytes) {
    const auto stored = read_whole(store, key, bytes.size());
    return stored && std::ranges::equal(*stored, bytes);
}

Result<std::vector<std::string>> keys_under(const Location& scratch, const std::string& prefix,
                                            const std::string& after, std::size_t limit) {
    WISP_ASSIGN(const auto listed, scratch.store->list(prefix, after, limit));
    std::vector<std::string> keys;
    for (const ListedObject& object : listed) keys.push_back(object.key);
    return keys;
}

}  // namespace

Result<Finding> probe_create_twice(const Location& scratch) {
    const std::string name = "create_twice";
    const std::string key = scratch.key("twice");
    WISP_ASSIGN(const Created first, scratch.store->create(key, as_bytes("first")));
    WISP_ASSIGN(const Created second, scratch.store->create(key, as_bytes("other")));
    if (first != Created::kNew) return failed(name, "a new object was said to be there already");
    const auto stored = read_whole(*scratch.store, key, 100);
    if (!stored && stored.error().kind == ErrorKind::kUnavailable) {
        return std::unexpected(stored.error());
    }
    if (second == Created::kNew || !stored || as_text(*stored) != "first") {
        return failed(name, "the store ignores the condition of a conditional write");
    }
    return passed(name, "the second create of one object is refused");
}

Result<Finding> probe_ranges(const Location& scratch) {
    const std::string name = "ranges";
    const std::string key = scratch.key("ranges");
    const Bytes whole = numbered_bytes(100'000, 1);
    WISP_TRY(scratch.store->put(key, whole));
    struct Range {
        std::uint64_t offset;
        std::size_t length;
    };
    for (const auto& [offset, length] :
         {Range{0, 1}, Range{0, 100'000}, Range{1, 99'998}, Range{50'000, 7}, Range{99'999, 1},
          Range{99'990, 100}, Range{100'000, 5}, Range{200'000, 5}}) {
        Bytes into(length);
        WISP_ASSIGN(const std::size_t count, scratch.store->read(key, offset, into));
        const std::size_t begin = std::min<std::size_t>(offset, whole.size());
        const std::size_t expected = std::min(length, whole.size() - begin);
        const auto wanted = std::span(whole).subspan(begin, expected);
        if (count != expected || !std::ranges::equal(std::span(into).first(count), wanted)) {
            return failed(name, fmt::format("reading {} bytes at {} of {} gave {}, or other bytes",
                                            length, offset, whole.size(), count));
        }
    }
    return passed(name, "parts of an object are read exactly");
}

Result<Finding> probe_overwrite(const Location& scratch) {
    const std::string name = "overwrite";
    constexpr int kRounds = 12;
    const std::string key = scratch.key("overwrite");
    if (const auto missing = scratch.store->head(key); missing) {
        return failed(name, "an object nobody wrote is there");
    }
    // The miss above must not be remembered by anything in between.
    for (int round = 0; round < kRounds; ++round) {
        const Bytes bytes = numbered_bytes(1'000 + static_cast<std::size_t>(round % 3),
                                           static_cast<std::uint64_t>(round));
        WISP_TRY(scratch.store->put(key, bytes));
        WISP_ASSIGN(const ObjectInfo info, scratch.store->head(key));
        if (info.size_bytes != bytes.size() || !holds(*scratch.store, key, bytes)) {
            return failed(name, "an old object was read after it had been replaced",
                          "use the store without a cache in between, or another store");
        }
    }
    return passed(name, fmt::format("{} replacements, each read back at once", kRounds));
}

Result<Finding> probe_remove(const Location& scratch) {
    const std::string name = "remove";
    const std::string key = scratch.key("removed/object");
    WISP_TRY(scratch.store->put(key, as_bytes("x")));
    const auto removed = scratch.store->remove(key);
    if (!removed && removed.error().kind == ErrorKind::kDenied) {
        return Finding{name, Verdict::kWarn, removed.error().text,
                       "allow deleting, or let another account tidy the run"};
    }
    WISP_TRY(removed);
    Bytes into(1);
    const auto gone = scratch.store->read(key, 0, into);
    WISP_TRY(scratch.store->remove(key));
    WISP_ASSIGN(const auto keys, keys_under(scratch, key, "", 10));
    if (gone || gone.error().kind != ErrorKind::kNotFound || !keys.empty()) {
        return failed(name, "a removed object can still be read or listed");
    }
    return passed(name, "a removed object is gone at once");
}

Result<Finding> probe_listing(const Location& scratch) {
    const std::string name = "listing";
    const std::string root = scratch.key("list/");
    std::vector<std::string> all;
    for (const char* part : {"a", "a-", "a.b/x", "b/c/d", "b/c0", "ba"}) {
        for (int i = 0; i < 4; ++i) all.push_back(fmt::format("{}{}/{}", root, part, i));
    }
    for (const std::string& key : all) WISP_TRY(scratch.store->put(key, as_bytes("x")));
    WISP_ASSIGN(const auto newest, keys_under(scratch, all.back(), "", 1));
    if (newest.empty()) return failed(name, "a new object is not listed at once");
    std::ranges::sort(all);
    std::vector<std::string> paged;
    while (paged.size() <= all.size()) {
        WISP_ASSIGN(const auto page,
                    keys_under(scratch, root, paged.empty() ? "" : paged.back(), 7));
        if (page.empty()) break;
        paged.insert(paged.end(), page.begin(), page.end());
    }
    if (paged != all) {
        return failed(name, fmt::format("{} new objects were listed as {}, or in another order",
                                        all.size(), paged.size()));
    }
    WISP_ASSIGN(const auto some, keys_under(scratch, root + "b", "", 100));
    if (some.size() != 12) return failed(name, "a prefix lists other objects than those it begins");
    return passed(name, "complete at once, ordered by bytes, in pages");
}

Result<Finding> probe_key_characters(const Location& scratch) {
    const std::string name = "key_characters";
    std::string broken;
    for (const char* part : {"with space", "plus+plus", "per%cent", "%41", "a=b&c", "tilde~",
                             "(x)!", "semi;colon:", "q?hash#", "<tag>'\"", "ünïcödé-日本"}) {
        const std::string key = scratch.key(fmt::format("chars/{}", part));
        const auto put = scratch.store->put(key, as_bytes(part));
        if (!put && put.error().kind == ErrorKind::kUnavailable)
            return std::unexpected(put.error());
        const auto listed = keys_under(scratch, key, "", 2);
        const bool well = put && holds(*scratch.store, key, as_bytes(part)) && listed &&
                          listed->size() == 1 && listed->front() == key;
        if (!well) broken += (broken.empty() ? "" : ", ") + shown(part);
    }
    if (broken.empty()) return passed(name, "spaces, signs and letters of all kinds come back");
    return Finding{name, Verdict::kWarn, fmt::format("the store cannot hold {}", broken),
                   "name runs with letters, digits, '-', '_' and '.' only"};
}

Result<Finding> probe_clock(const Location& scratch) {
    const std::string name = "clock";
    WISP_ASSIGN(const std::int64_t there, scratch.store->now_ms());
    const std::int64_t drift = there - system_clock()->now_ms();
    const double seconds = static_cast<double>(std::abs(drift)) / 1000;
    const auto text = fmt::format("the store's clock is {:.1f} s {} this machine's", seconds,
                                  drift < 0 ? "behind" : "ahead of");
    if (std::abs(drift) <= kDriftMs) return passed(name, text);
    return Finding{name, Verdict::kWarn, text, "set this machine's clock, or the store's, by NTP"};
}

Result<Finding> probe_large_object(const Location& scratch, std::size_t size_bytes) {
    const std::string name = "large_object";
    const std::string key = scratch.key("large");
    const Bytes bytes = numbered_bytes(size_bytes, 2);
    WISP_TRY(scratch.store->put(key, bytes));
    WISP_ASSIGN(const ObjectInfo info, scratch.store->head(key));
    if (info.size_bytes != size_bytes || !holds(*scratch.store, key, bytes)) {
        return failed(name, fmt::format("an object of {} bytes came back changed", size_bytes));
    }
    (void)scratch.store->remove(key);
    return passed(name, fmt::format("{} MiB come back exactly", size_bytes >> 20));
}

}  // namespace wisp
