// An object store: named immutable-by-convention blobs, the only thing trainer and replica share.
//
// What every store promises (tests/contract holds each of them to it):
//  - put, create, get and remove of one key are atomic: a reader sees all of an object or none.
//  - After put, create or remove has answered, every later read sees its effect.
//  - create() lets exactly one caller win, however many race, if creates_exclusively().
//  - An error of kind kUnavailable leaves open whether a write happened; the caller looks.
//  - All calls may be made from any number of threads.
// Keys are relative to the store's root: UTF-8 parts without control characters joined by single
// '/', no part ".", ".." or empty, at most 900 bytes; others are kInvalid before anything is sent.
// Errors: kNotFound, kDenied, kUnavailable, kNoSpace, kInvalid, kCorrupt (the store spoke
// nonsense), kIncapable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/result.hpp"

namespace wisp {

struct ObjectInfo {
    std::uint64_t size_bytes = 0;
    /// By the store's own clock, milliseconds since 1970; 0 when the store does not say.
    std::int64_t modified_ms = 0;
};

struct ListedObject {
    std::string key;
    ObjectInfo info;
};

enum class Created { kNew, kAlreadyThere };

/// What is particular about using a store; most have nothing to say.
struct StoreTerms {
    std::string way;            // how it is reached and what that promises, for people
    std::string better;         // how to come by a better way; empty: there is none
    std::uint32_t poll_ms = 0;  // followers ask no more often than this
    bool few_requests = false;  // they are counted: make few, and large ones
};

class Store {
  public:
    virtual ~Store() = default;

    /// For messages and logs; never holds a secret.
    virtual std::string label() const = 0;
    /// The same for all stores that hold the same objects under the same keys.
    virtual std::string bucket() const { return label(); }
    /// Creates or replaces.
    virtual Result<void> put(const std::string& key, std::span<const std::byte> bytes) = 0;
    /// Creates, or leaves what is there alone.
    virtual Result<Created> create(const std::string& key, std::span<const std::byte> bytes) = 0;
    /// Fills `into` from `offset` on and returns how many bytes there were: fewer than asked only
    /// where the object ends. kNotFound when there is no such object.
    virtual Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                                     std::span<std::byte> into) = 0;
    virtual Result<ObjectInfo> head(const std::string& key) = 0;
    /// An object that is not there is as good as removed.
    virtual Result<void> remove(const std::string& key) = 0;
    /// Up to `limit` objects whose keys start with `prefix` and come after `after`, ascending by
    /// bytes. kInvalid when no key could start with `prefix`.
    virtual Result<std::vector<ListedObject>> list(const std::string& prefix,
                                                   const std::string& after, std::size_t limit) = 0;
    /// The store's own clock, milliseconds since 1970: only its times are compared with each other.
    virtual Result<std::int64_t> now_ms() = 0;
    /// False: create() may let several racing callers win. Found out by `wisp doctor`, not by
    /// faith.
    virtual bool creates_exclusively() const { return true; }
    virtual StoreTerms terms() const { return {}; }
};

/// A run, or any prefix, inside a store.
struct Location {
    std::shared_ptr<Store> store;
    std::string prefix;  // without a closing '/'; may be empty
    std::string url;     // as the user wrote it, for messages

    std::string key(std::string_view name) const {
        return prefix.empty() ? std::string(name) : prefix + "/" + std::string(name);
    }
};

/// s3://bucket/prefix, hf://buckets/namespace/name/prefix, file:///absolute/path, or a plain path.
/// Settings come from the environment (AWS_*; wisp/hub.hpp for hf://); nothing is contacted yet.
/// kInvalid for anything else.
Result<Location> open_location(const std::string& url);

/// Asks again, with pauses, when `store` was unavailable; open_location does so for what is remote.
/// What is given to create() must be the caller's alone, by a nonce in it.
std::shared_ptr<Store> with_retries(std::shared_ptr<Store> store);

/// The whole object if it has at most `limit` bytes, else kCorrupt.
Result<std::vector<std::byte>> read_whole(Store& store, const std::string& key,
                                          std::uint64_t limit);

/// kInvalid when `key` breaks the rule above.
Result<void> check_key(std::string_view key);
/// kInvalid when no key could start with `prefix`.
Result<void> check_prefix(std::string_view prefix);

}  // namespace wisp
