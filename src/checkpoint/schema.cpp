#include "wisp/schema.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "kernel/tensor_seed.hpp"

namespace wisp {
namespace {

constexpr std::size_t kDigestDigits = 32;

/// doc/format.md section 4.
std::string digest_of(const std::vector<TensorInfo>& tensors) {
    Bytes listing;
    append_text(listing, "wisp schema 1");
    append_varint(listing, tensors.size());
    for (const TensorInfo& tensor : tensors) append_identity(listing, tensor);
    return to_hex(sha256(listing)).substr(0, kDigestDigits);
}

}  // namespace

Result<std::uint64_t> byte_count_of(const TensorInfo& tensor) {
    std::uint64_t bits = traits_of(tensor.dtype).bits;
    for (const std::uint64_t extent : tensor.shape) {
        if (__builtin_mul_overflow(bits, extent, &bits)) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("tensor {}: shape {} overflows 64 bits", shown(tensor.name),
                                    shape_text(tensor.shape)));
        }
    }
    if (bits % 8 != 0) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("tensor {}: {} of shape {} does not end on a whole byte",
                                shown(tensor.name), traits_of(tensor.dtype).name,
                                shape_text(tensor.shape)));
    }
    return bits / 8;
}

std::uint64_t element_count_of(const TensorInfo& tensor) {
    const auto bytes = byte_count_of(tensor);
    return bytes ? *bytes / traits_of(tensor.dtype).element_bytes : 0;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<Schema> Schema::make(std::vector<TensorInfo> tensors) {
    Schema schema;
    std::ranges::sort(tensors, {}, &TensorInfo::name);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (i > 0 && tensors[i].name == tensors[i - 1].name) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("tensor {} appears twice", shown(tensors[i].name)));
        }
        WISP_ASSIGN(const std::uint64_t bytes, byte_count_of(tensors[i]));
        if (__builtin_add_overflow(schema.total_bytes_, bytes, &schema.total_bytes_)) {
            return fail(ErrorKind::kInvalid, "the tensors together overflow 64 bits");
        }
        schema.total_elements_ += bytes / traits_of(tensors[i].dtype).element_bytes;
    }
    schema.digest_ = digest_of(tensors);
    schema.tensors_ = std::move(tensors);
    return schema;
}

std::optional<std::size_t> Schema::find(std::string_view name) const {
    const auto at = std::ranges::lower_bound(tensors_, name, {}, &TensorInfo::name);
    if (at == tensors_.end() || at->name != name) return std::nullopt;
    return static_cast<std::size_t>(at - tensors_.begin());
}

Result<void> require_same_schema(const Schema& expected, std::string_view expected_label,
                                 const Schema& actual, std::string_view actual_label) {
    for (const TensorInfo& tensor : expected.tensors()) {
        const auto at = actual.find(tensor.name);
        if (!at) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("tensor {} of {} is missing in {}; a delta stands between two "
                                    "checkpoints of the same tensors",
                                    shown(tensor.name), expected_label, actual_label));
        }
        const TensorInfo& other = actual.tensors()[*at];
        if (other == tensor) continue;
        return fail(
            ErrorKind::kInvalid,
            fmt::format("tensor {} is {} {} in {} but {} {} in {}; a delta needs the same "
                        "dtype and shape on both sides",
                        shown(tensor.name), traits_of(tensor.dtype).name, shape_text(tensor.shape),
                        expected_label, traits_of(other.dtype).name, shape_text(other.shape),
                        actual_label));
    }
    for (const TensorInfo& tensor : actual.tensors()) {
        if (expected.find(tensor.name)) continue;
        return fail(ErrorKind::kInvalid,
                    fmt::format("tensor {} of {} is not in {}; a delta stands between two "
                                "checkpoints of the same tensors",
                                shown(tensor.name), actual_label, expected_label));
    }
    return {};
}

}  // namespace wisp
