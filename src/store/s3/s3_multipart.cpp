#include "store/s3/s3_multipart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/transfer_tally.hpp"
#include "base/try.hpp"
#include "store/s3/s3_error.hpp"
#include "store/s3/s3_xml.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kMostParts = 10'000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr Milliseconds kCompletionPatience(300'000);  // S3 may take minutes to join the parts

std::string doing(const std::string& key) {
    return fmt::format("cannot write {}", shown(key));
}

Result<std::string> begin_upload(S3Client& client, const std::string& key) {
    S3Request request;
    request.method = "POST";
    request.key = key;
    request.query = {{"uploads", ""}};
    WISP_ASSIGN(const HttpResponse response, client.send(request));
    if (response.status != 200) {
        return std::unexpected(s3_error(client.settings(), doing(key), response));
    }
    auto id = parse_upload_id(response.body_text());
    if (!id) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} in {}: the store began an upload but named none", doing(key),
                                client.settings().label()));
    }
    return std::move(*id);
}

Result<std::string> send_part(S3Client& client, const std::string& key, const std::string& id,
                              std::uint64_t number, std::span<const std::byte> bytes) {
    S3Request request;
    request.method = "PUT";
    request.key = key;
    request.query = {{"partNumber", fmt::format("{}", number)}, {"uploadId", id}};
    request.body = bytes;
    WISP_ASSIGN(const HttpResponse response, client.send(request));
    if (response.status != 200) {
        return std::unexpected(s3_error(client.settings(), doing(key), response));
    }
    std::string etag(response.header("etag"));
    if (etag.empty()) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} in {}: the store took part {} but named no ETag", doing(key),
                                client.settings().label(), number));
    }
    return etag;
}

Result<void> complete_upload(S3Client& client, const std::string& key, const std::string& id,
                             const std::vector<std::string>& etags) {
    const std::string body = write_upload_parts(etags);
    S3Request request;
    request.method = "POST";
    request.key = key;
    request.query = {{"uploadId", id}};
    request.headers = {{"Content-Type", "application/xml"}};
    request.body = as_bytes(body);
    request.stall_timeout = std::max(kCompletionPatience, client.settings().stall_timeout);
    WISP_ASSIGN(const HttpResponse response, client.send(request));
    // The status is sent before the parts are joined: what went wrong then is in the body of a 200.
    const auto problem = parse_problem(response.body_text());
    if (problem) {
        return std::unexpected(s3_error(client.settings(), doing(key), response, *problem));
    }
    if (response.status != 200) {
        return std::unexpected(s3_error(client.settings(), doing(key), response));
    }
    if (!is_upload_result(response.body_text())) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{} in {}: the store did not say whether the upload is complete; "
                                "try again",
                                doing(key), client.settings().label()));
    }
    return {};
}

/// Best effort: what it leaves behind is invisible, and a lifecycle rule can remove it.
void abort_upload(S3Client& client, const std::string& key, const std::string& id) {
    S3Request request;
    request.method = "DELETE";
    request.key = key;
    request.query = {{"uploadId", id}};
    request.despite_stop = true;
    (void)client.send(request);
}

}  // namespace

std::uint64_t part_size_for(std::uint64_t size_bytes, std::uint64_t wanted) {
    const std::uint64_t least = size_bytes / kMostParts + (size_bytes % kMostParts != 0 ? 1 : 0);
    if (least <= wanted) return wanted;
    return (least + kMiB - 1) / kMiB * kMiB;
}

Result<void> put_in_parts(S3Client& client, const std::string& key,
                          std::span<const std::byte> bytes) {
    const std::uint64_t part_bytes = part_size_for(bytes.size(), client.settings().part_bytes);
    const std::uint64_t count = (bytes.size() + part_bytes - 1) / part_bytes;
    WISP_ASSIGN(const std::string id, begin_upload(client, key));
    std::vector<std::string> etags;
    TransferScope* const counted = TransferScope::innermost();
    Result<void> done = ordered_parallel<std::string>(
        count, client.settings().parallel_parts,
        [&](std::uint64_t i, unsigned) {
            const TransferScope handed_on(counted);
            const std::uint64_t first = i * part_bytes;
            const std::uint64_t size = std::min<std::uint64_t>(part_bytes, bytes.size() - first);
            return send_part(
                client, key, id, i + 1,
                bytes.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size)));
        },
        [&](std::uint64_t, std::string etag) -> Result<void> {
            etags.push_back(std::move(etag));
            return {};
        });
    if (done) done = complete_upload(client, key, id, etags);
    if (!done) abort_upload(client, key, id);
    return done;
}

}  // namespace wisp
