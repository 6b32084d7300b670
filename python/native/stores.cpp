#include "stores.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "bindings.hpp"
#include "calls.hpp"
#include "lent_file.hpp"
#include "wisp/hub.hpp"
#include "wisp/result.hpp"

namespace wisp::python {
namespace {

constexpr std::size_t kByFileBytes = 8 << 20;

nb::bytes bytes_of(std::span<const std::byte> bytes) {
    return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

ObjectInfo info_of(nb::handle size_bytes, nb::handle modified_ms) {
    return {nb::cast<std::uint64_t>(size_bytes), nb::cast<std::int64_t>(modified_ms)};
}

class PythonStore : public Store {
  public:
    explicit PythonStore(nb::object store) : store_(std::move(store)) {
        label_ = nb::cast<std::string>(nb::str(store_.attr("label")));
        exclusive_ = nb::cast<bool>(store_.attr("creates_exclusively"));
        takes_files_ = nb::hasattr(store_, "put_file");
        terms_.way = nb::cast<std::string>(nb::getattr(store_, "way", nb::str("")));
        terms_.better = nb::cast<std::string>(nb::getattr(store_, "better", nb::str("")));
        const double poll = nb::cast<double>(nb::getattr(store_, "poll", nb::float_(0)));
        if (poll > 0 && poll <= 3600) terms_.poll_ms = static_cast<std::uint32_t>(poll * 1000);
        terms_.few_requests = nb::cast<bool>(nb::getattr(store_, "few_requests", nb::bool_(false)));
    }
    ~PythonStore() override {
        const Locked lock;
        store_.reset();
    }
    PythonStore(const PythonStore&) = delete;
    PythonStore& operator=(const PythonStore&) = delete;

    std::string label() const override { return label_; }
    bool creates_exclusively() const override { return exclusive_; }
    StoreTerms terms() const override { return terms_; }

    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        if (takes_files_ && bytes.size() >= kByFileBytes) return put_by_file(key, bytes);
        return ask<void>("put", key, [&]() -> Result<void> {
            store_.attr("put")(key, bytes_of(bytes));
            return {};
        });
    }

    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        return ask<Created>("create", key, [&]() -> Result<Created> {
            const bool is_new = nb::cast<bool>(store_.attr("create")(key, bytes_of(bytes)));
            return is_new ? Created::kNew : Created::kAlreadyThere;
        });
    }

    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        return ask<std::size_t>("read", key, [&]() -> Result<std::size_t> {
            const nb::object answer = store_.attr("read")(key, offset, into.size());
            const auto bytes = nb::cast<nb::bytes>(answer);
            if (bytes.size() > into.size()) {
                return fail(ErrorKind::kCorrupt,
                            fmt::format("{} gave {} bytes of '{}' where {} were asked for", label_,
                                        bytes.size(), printable(key), into.size()));
            }
            std::memcpy(into.data(), bytes.c_str(), bytes.size());
            return bytes.size();
        });
    }

    Result<ObjectInfo> head(const std::string& key) override {
        return ask<ObjectInfo>("head", key, [&]() -> Result<ObjectInfo> {
            const nb::object answer = store_.attr("head")(key);
            return info_of(answer[0], answer[1]);
        });
    }

    Result<void> remove(const std::string& key) override {
        return ask<void>("remove", key, [&]() -> Result<void> {
            store_.attr("remove")(key);
            return {};
        });
    }

    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        if (auto checked = check_prefix(prefix); !checked) {
            return std::unexpected(std::move(checked).error());
        }
        using Listing = std::vector<ListedObject>;
        return call_python<Listing>(during("list"), [&]() -> Result<Listing> {
            Listing found;
            if (limit == 0) return found;
            const nb::object answer = store_.attr("list")(prefix, after, limit);
            for (const nb::handle entry : answer) {
                ListedObject object{nb::cast<std::string>(entry[0]), info_of(entry[1], entry[2])};
                const std::string& last = found.empty() ? after : found.back().key;
                if (!object.key.starts_with(prefix) || object.key <= last ||
                    found.size() == limit) {
                    return fail(ErrorKind::kCorrupt,
                                fmt::format("{} lists '{}' out of turn: keys must start with the "
                                            "prefix, come after the given one, ascend by bytes, "
                                            "and keep to the limit",
                                            label_, printable(object.key)));
                }
                found.push_back(std::move(object));
            }
            return found;
        });
    }

    Result<std::int64_t> now_ms() override {
        return call_python<std::int64_t>(during("now_ms"), [&]() -> Result<std::int64_t> {
            return nb::cast<std::int64_t>(store_.attr("now_ms")());
        });
    }

  private:
    /// What is large goes by way of a file instead of a second copy in Python's memory.
    Result<void> put_by_file(const std::string& key, std::span<const std::byte> bytes) {
        if (auto checked = check_key(key); !checked) {
            return std::unexpected(std::move(checked).error());
        }
        auto file = LentFile::holding(bytes);
        if (!file) return std::unexpected(std::move(file).error());
        return ask<void>("put_file", key, [&]() -> Result<void> {
            store_.attr("put_file")(key, file->path());
            return {};
        });
    }
    std::string during(const char* method) const { return label_ + ": " + method + "()"; }

    template <class T, class Call>
    Result<T> ask(const char* method, const std::string& key, Call call) {
        if (auto checked = check_key(key); !checked) {
            return std::unexpected(std::move(checked).error());
        }
        return call_python<T>(during(method), call);
    }

    nb::object store_;
    std::string label_;
    StoreTerms terms_;
    bool exclusive_ = false;
    bool takes_files_ = false;
};

}  // namespace

std::shared_ptr<Store> store_of(nb::object python_store) {
    return std::make_shared<PythonStore>(std::move(python_store));
}

void bind_stores(nb::module_& module) {
    nb::class_<Location>(module, "Location", "A run, or any prefix, inside a store.")
        .def_ro("url", &Location::url)
        .def_ro("prefix", &Location::prefix)
        .def_prop_ro("label", [](const Location& self) { return self.store->label(); })
        .def_prop_ro("creates_exclusively",
                     [](const Location& self) { return self.store->creates_exclusively(); })
        .def_prop_ro(
            "way", [](const Location& self) { return self.store->terms().way; },
            "How the store is reached, where there are several ways to it.")
        .def_prop_ro(
            "poll", [](const Location& self) { return self.store->terms().poll_ms / 1000.0; },
            "Followers ask no more often than every so many seconds.");
    module.def(
        "hub_access",
        [](const std::string& url) {
            const HubAddress address = value_of(parse_hub_address(url));
            const HubAccess access = value_of(hub_access(address));
            return nb::make_tuple(address.id(), address.prefix, access.gateway, access.lacking);
        },
        nb::arg("url"), nb::sig("def hub_access(url: str) -> tuple[str, str, str, str]"),
        "(bucket, prefix, S3 gateway or \"\", what it takes to use that) of an hf:// address.");
    module.def(
        "open_location",
        [](const std::string& url) { return long_call([&] { return open_location(url); }); },
        nb::arg("url"));
    module.def(
        "locate",
        [](nb::object store, const std::string& prefix) {
            if (!prefix.empty()) value_of(check_key(prefix));
            auto opened = store_of(std::move(store));
            const std::string url = opened->label() + (prefix.empty() ? "" : "/") + prefix;
            return Location{with_retries(std::move(opened)), prefix, url};
        },
        nb::arg("store"), nb::arg("prefix") = "", "A place in a store written in Python.");
}

}  // namespace wisp::python
