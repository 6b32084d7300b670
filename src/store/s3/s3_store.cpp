#include "store/s3/s3_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/decimal.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/s3/hub_gateway.hpp"
#include "store/s3/s3_client.hpp"
#include "store/s3/s3_error.hpp"
#include "store/s3/s3_multipart.hpp"
#include "store/s3/s3_xml.hpp"
#include "store/s3/wire_range.hpp"
#include "store/s3/wire_time.hpp"
#include "store/store_keys.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kLargestPut = std::uint64_t{5} << 30;
constexpr std::uint64_t kLargestObject = std::uint64_t{5} << 40;
constexpr std::size_t kPageKeys = 1000;
constexpr int kMostEmptyPages = 1000;
constexpr int kMostConflicts = 6;

class S3Store : public Store {
  public:
    explicit S3Store(std::shared_ptr<S3Client> client) : client_(std::move(client)) {}

    std::string label() const override { return client_->settings().label(); }
    StoreTerms terms() const override {
        return client_->settings().is_hub() ? hub_terms(client_->settings()) : StoreTerms{};
    }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override;
    Result<void> remove(const std::string& key) override;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    Result<std::int64_t> now_ms() override;

  private:
    Result<void> admit(const std::string& key) const {
        return client_->settings().is_hub() ? check_hub_key(key) : check_key(key);
    }
    Error error(const char* verb, const std::string& key, const HttpResponse& response) const {
        return s3_error(client_->settings(), fmt::format("cannot {} {}", verb, shown(key)),
                        response);
    }
    Error nonsense(const char* verb, const std::string& key, const std::string& why) const {
        return {ErrorKind::kCorrupt,
                fmt::format("cannot {} {} in {}: {}", verb, shown(key), label(), why)};
    }
    Result<std::size_t> read_answer(const std::string& key, std::uint64_t offset, std::size_t asked,
                                    const HttpResponse& response) const;
    Result<ListPage> list_page(const std::string& prefix, const std::string& after,
                               const std::string& token, std::size_t limit);

    std::shared_ptr<S3Client> client_;
};

Result<void> S3Store::put(const std::string& key, std::span<const std::byte> bytes) {
    WISP_TRY(admit(key));
    if (bytes.size() > kLargestObject) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} has {} bytes; S3 holds at most 5 TiB in one object", shown(key),
                                bytes.size()));
    }
    if (bytes.size() > client_->settings().multipart_above_bytes) {
        return put_in_parts(*client_, key, bytes);
    }
    S3Request request;
    request.method = "PUT";
    request.key = key;
    request.body = bytes;
    WISP_ASSIGN(const HttpResponse response, client_->send(request));
    if (response.status / 100 != 2) return std::unexpected(error("write", key, response));
    return {};
}

Result<Created> S3Store::create(const std::string& key, std::span<const std::byte> bytes) {
    WISP_TRY(admit(key));
    if (bytes.size() > kLargestPut) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} has {} bytes; at most 5 GiB can be created as one piece",
                                shown(key), bytes.size()));
    }
    S3Request request;
    request.method = "PUT";
    request.key = key;
    request.headers = {{"If-None-Match", "*"}};
    // Sent twice unseen, our own success would come back as "already there".
    request.send_once = true;
    request.body = bytes;
    std::minstd_rand dice{std::random_device{}()};
    for (int conflicts = 0;;) {
        WISP_ASSIGN(const HttpResponse response, client_->send(request));
        if (response.status / 100 == 2) return Created::kNew;
        if (response.status == 412) return Created::kAlreadyThere;
        // 409: another writer is at it this moment; who wins is not decided yet.
        if (response.status != 409 || ++conflicts >= kMostConflicts) {
            return std::unexpected(error("create", key, response));
        }
        std::uniform_int_distribution<int> jitter(10, 20 << conflicts);
        client_->clock().sleep_for(Milliseconds(jitter(dice)));
    }
}

Result<std::size_t> S3Store::read(const std::string& key, std::uint64_t offset,
                                  std::span<std::byte> into) {
    WISP_TRY(admit(key));
    if (into.empty()) {
        WISP_TRY(head(key));
        return std::size_t{0};
    }
    S3Request request;
    request.key = key;
    const std::uint64_t most = UINT64_MAX - offset;
    const std::uint64_t last = offset + std::min<std::uint64_t>(into.size() - 1, most);
    request.headers = {{"Range", fmt::format("bytes={}-{}", offset, last)}};
    request.into = into;
    WISP_ASSIGN(const HttpResponse response, client_->send(request));
    return read_answer(key, offset, into.size(), response);
}

Result<std::size_t> S3Store::read_answer(const std::string& key, std::uint64_t offset,
                                         std::size_t asked, const HttpResponse& response) const {
    const auto range = parse_content_range(response.header("content-range"));
    if (response.status == 416) {
        if (range && range->total && *range->total > offset) {
            return std::unexpected(nonsense("read", key, "it refuses a range that it has"));
        }
        return std::size_t{0};
    }
    if (response.status == 200) {
        // The range was ignored, which does no harm when the whole object is what was asked for.
        if (offset == 0) return response.into_bytes;
        return fail(
            ErrorKind::kIncapable,
            fmt::format("cannot read {} in {}: the store ignores ranges", shown(key), label()));
    }
    if (response.status != 206) return std::unexpected(error("read", key, response));
    if (!range || !range->first || *range->first != offset) {
        return std::unexpected(nonsense("read", key, "it answered another range than asked"));
    }
    const std::uint64_t length = range->length;
    if (length > asked) {
        return std::unexpected(nonsense("read", key, "it answered more than was asked"));
    }
    if (response.into_bytes != length) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("cannot read {} in {}: {} of {} bytes came; try again", shown(key),
                                label(), response.into_bytes, length));
    }
    if (length < asked && range->total && offset + length < *range->total) {
        return std::unexpected(nonsense("read", key, "it answered less than was asked"));
    }
    return static_cast<std::size_t>(length);
}

Result<ObjectInfo> S3Store::head(const std::string& key) {
    WISP_TRY(admit(key));
    S3Request request;
    request.method = "HEAD";
    request.key = key;
    WISP_ASSIGN(const HttpResponse response, client_->send(request));
    if (response.status != 200) return std::unexpected(error("look at", key, response));
    const auto size = whole_number(response.header("content-length"));
    if (!size) return std::unexpected(nonsense("look at", key, "it names no size"));
    return ObjectInfo{*size, parse_http_date(response.header("last-modified")).value_or(0)};
}

Result<void> S3Store::remove(const std::string& key) {
    WISP_TRY(admit(key));
    S3Request request;
    request.method = "DELETE";
    request.key = key;
    WISP_ASSIGN(const HttpResponse response, client_->send(request));
    if (response.status / 100 == 2) return {};
    const auto problem = parse_problem(response.body_text());
    const bool bucket_missing = problem && problem->code == "NoSuchBucket";
    if (response.status == 404 && !bucket_missing) return {};
    return std::unexpected(error("remove", key, response));
}

Result<ListPage> S3Store::list_page(const std::string& prefix, const std::string& after,
                                    const std::string& token, std::size_t limit) {
    S3Request request;
    request.query = {{"list-type", "2"},
                     {"encoding-type", "url"},
                     {"max-keys", fmt::format("{}", std::min(limit, kPageKeys))}};
    if (!prefix.empty()) request.query.emplace_back("prefix", prefix);
    if (!token.empty()) {
        request.query.emplace_back("continuation-token", token);
    } else if (!after.empty()) {
        request.query.emplace_back("start-after", after);
    }
    WISP_ASSIGN(const HttpResponse response, client_->send(request));
    if (response.status != 200) return std::unexpected(error("list", prefix, response));
    auto page = parse_list_page(response.body_text());
    if (!page) return std::unexpected(nonsense("list", prefix, "it did not answer with a list"));
    return std::move(*page);
}

Result<std::vector<ListedObject>> S3Store::list(const std::string& prefix, const std::string& after,
                                                std::size_t limit) {
    WISP_TRY(check_prefix(prefix));
    std::vector<ListedObject> found;
    std::string last;  // of the keys seen, wanted or not
    std::string token;
    for (int empty_pages = 0; found.size() < limit;) {
        WISP_ASSIGN(ListPage page,
                    list_page(prefix, std::max(after, last), token, limit - found.size()));
        for (ListedObject& object : page.objects) {
            if (!object.key.starts_with(prefix)) {
                return std::unexpected(nonsense("list", prefix, "it lists keys of other prefixes"));
            }
            if (!last.empty() && object.key <= last) {
                return fail(ErrorKind::kIncapable,
                            fmt::format("cannot list {} in {}: the keys do not come in order",
                                        shown(prefix), label()));
            }
            last = object.key;
            // Not every store heeds start-after; and a key that no call could name, such as the
            // marker of a folder, is not one of ours.
            const bool wanted = object.key > after && admit(object.key);
            if (wanted && found.size() < limit) found.push_back(std::move(object));
        }
        if (!page.truncated) break;
        empty_pages = page.objects.empty() ? empty_pages + 1 : 0;
        const bool stuck = page.objects.empty() && page.next_token == token;
        if (stuck || empty_pages > kMostEmptyPages) {
            return std::unexpected(nonsense("list", prefix, "the list does not end"));
        }
        token = std::move(page.next_token);
    }
    return found;
}

Result<std::int64_t> S3Store::now_ms() {
    S3Request request;
    request.method = "HEAD";
    WISP_ASSIGN(const HttpResponse response, client_->send(request));
    // A key that may not look at the bucket is told the time all the same.
    const bool told = response.status == 200 || response.status == 403;
    if (!told) {
        if (response.status == 404) {
            return fail(
                ErrorKind::kNotFound,
                fmt::format("there is no bucket {}; create it, or check the name and {}", label(),
                            client_->settings().is_hub() ? "its namespace" : "AWS_ENDPOINT_URL"));
        }
        return std::unexpected(s3_error(client_->settings(), "cannot ask for the time", response));
    }
    const auto date_ms = parse_http_date(response.header("date"));
    if (!date_ms) {
        return fail(ErrorKind::kIncapable, fmt::format("{} does not say what time it is", label()));
    }
    return *date_ms;
}

}  // namespace

std::shared_ptr<Store> make_s3_store(const S3Settings& settings, const Environment& environment,
                                     std::shared_ptr<Clock> clock,
                                     std::shared_ptr<HttpClient> http) {
    if (!http) http = std::make_shared<HttpClient>(settings.ca_bundle);
    auto credentials = std::make_shared<CredentialChain>(environment, http, clock, settings.region);
    auto client = std::make_shared<S3Client>(settings, std::move(credentials), std::move(http),
                                             std::move(clock));
    return std::make_shared<S3Store>(std::move(client));
}

Result<std::shared_ptr<Store>> open_s3_store(const std::string& bucket) {
    const Environment environment = process_environment();
    WISP_ASSIGN(const S3Settings settings, s3_settings_from(environment, bucket));
    return make_s3_store(settings, environment, system_clock());
}

Result<std::shared_ptr<Store>> open_hub_store(const HubAddress& address) {
    const Environment environment = process_environment();
    WISP_ASSIGN(const HubGateway gateway, hub_gateway_from(environment));
    if (!gateway.ready()) {
        return fail(
            ErrorKind::kDenied,
            fmt::format("hf://buckets/{} cannot be reached: {}{}", address.id(), gateway.lacking,
                        gateway.has_token ? "; with the token that is there, wisp's Python "
                                            "package can use the Hub's own API instead"
                                          : ""));
    }
    return make_s3_store(hub_settings(address, gateway, environment), only_keys(gateway.keys),
                         system_clock());
}

}  // namespace wisp
