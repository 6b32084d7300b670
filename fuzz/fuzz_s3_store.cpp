// Any answers to what an S3Store asks. The first line is the call: "read 4 10", "list", "put",
// "create", "head", "remove", "time". Nothing more comes back than was asked for, nothing is called
// done that was not, and what is signed goes to nobody else.
#include <array>

#include "scripted_http.hpp"
#include "store/s3/s3_store.hpp"
#include "store/store_keys.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

constexpr std::int64_t kTooLateMs = 253'402'300'800'000;
constexpr std::string_view kOrigin = "https://store.example";

std::string environment(const char* name) {
    const std::string_view asked(name);
    if (asked == "AWS_ACCESS_KEY_ID") return "id";
    if (asked == "AWS_SECRET_ACCESS_KEY") return "secret";
    return asked == "AWS_SESSION_TOKEN" ? "token" : "";
}

template <class T>
bool sound(const Result<T>& result) {
    if (!result) check_error(result.error());
    return result.has_value();
}

void check_read(Store& store, std::uint64_t offset, std::uint64_t wanted) {
    std::array<std::byte, 64> bytes;
    bytes.fill(std::byte{0x23});
    const std::size_t count = wanted % 48;
    const auto read = store.read("key", offset, std::span(bytes).first(count));
    if (sound(read)) FUZZ_CHECK(*read <= count);
    for (std::size_t i = count; i < bytes.size(); ++i) FUZZ_CHECK(bytes[i] == std::byte{0x23});
}

void check_list(Store& store) {
    const std::string prefix = "a";
    const std::string after = "a1";
    const auto found = store.list(prefix, after, 3);
    if (!sound(found)) return;
    FUZZ_CHECK(found->size() <= 3);
    std::string last = after;
    for (const ListedObject& object : *found) {
        FUZZ_CHECK(object.key > last && object.key.starts_with(prefix) && check_key(object.key));
        FUZZ_CHECK(object.info.modified_ms >= 0 && object.info.modified_ms < kTooLateMs);
        last = object.key;
    }
}

void check_create(Store& store, const ScriptedHttp& http) {
    const auto created = store.create("key", as_bytes(std::string_view("0123456789")));
    if (!sound(created)) return;
    const bool new_one = *created == Created::kNew;
    FUZZ_CHECK(new_one ? http.last_status() / 100 == 2 : http.last_status() == 412);
}

void call(Store& store, std::string_view line, const ScriptedHttp& http) {
    const std::string_view verb = cut(line, " ");
    const std::string_view first = cut(line, " ");
    if (verb == "read") {
        check_read(store, whole_number(first).value_or(0), whole_number(line).value_or(10));
    }
    if (verb == "list") check_list(store);
    if (verb == "create") check_create(store, http);
    // Three parts, one after the other.
    if (verb == "put" && sound(store.put("key", as_bytes(std::string_view("0123456789"))))) {
        FUZZ_CHECK(http.last_status() == 200 && http.asked().size() >= 5);
    }
    if (verb == "head") {
        const auto info = store.head("key");
        if (sound(info)) FUZZ_CHECK(info->modified_ms >= 0 && info->modified_ms < kTooLateMs);
    }
    if (verb == "remove" && sound(store.remove("key"))) {
        FUZZ_CHECK(http.last_status() / 100 == 2 || http.last_status() == 404);
    }
    if (verb == "time") {
        const auto now = store.now_ms();
        if (sound(now)) FUZZ_CHECK(*now > 0 && *now < kTooLateMs);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view script(reinterpret_cast<const char*>(data), size);
    const std::string_view line = cut(script, "\n");
    const auto http = std::make_shared<ScriptedHttp>(script);
    S3Settings settings;
    settings.bucket = "bucket";
    settings.endpoint = kOrigin;
    settings.multipart_above_bytes = 8;
    settings.part_bytes = 4;
    settings.parallel_parts = 1;
    const auto store = make_s3_store(settings, environment, std::make_shared<FuzzClock>(), http);
    call(*store, line, *http);
    for (const auto& asked : http->asked()) {
        FUZZ_CHECK(asked.url.scheme == "https");
        if (asked.url.origin() == kOrigin) continue;
        FUZZ_CHECK(!is_link_local(asked.url.host));
        FUZZ_CHECK(asked.method == "GET" || asked.method == "HEAD");
        for (const auto& [name, value] : asked.headers) {
            FUZZ_CHECK(name != "Authorization" && !name.starts_with("x-amz-"));
        }
    }
    return 0;
}
