// What a checkpoint consists of: tensors by name, dtype and shape, in ascending order of name.
//
// A Schema is immutable once made and identifies which checkpoints a delta can stand between.
//
// wisp compares and codes *elements* of 1, 2, 4 or 8 bytes. For whole-byte types an element is the
// tensor's own element; the packed sub-byte types (F4, F6_*) are taken as bytes. The exponent field
// groups elements whose chance to change is alike; types without one have zero exponent bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/result.hpp"

namespace wisp {

/// The element types of safetensors. The values are written into delta directories: doc/format.md
/// section 6.
enum class Dtype : std::uint8_t {
    kBool = 0,
    kF4 = 1,
    kF6E2M3 = 2,
    kF6E3M2 = 3,
    kU8 = 4,
    kI8 = 5,
    kF8E5M2 = 6,
    kF8E4M3 = 7,
    kF8E8M0 = 8,
    kF8E4M3Fnuz = 9,
    kF8E5M2Fnuz = 10,
    kI16 = 11,
    kU16 = 12,
    kF16 = 13,
    kBf16 = 14,
    kI32 = 15,
    kU32 = 16,
    kF32 = 17,
    kC64 = 18,
    kF64 = 19,
    kI64 = 20,
    kU64 = 21,
};

inline constexpr int kDtypeCount = 22;

struct DtypeTraits {
    std::string_view name;    // as safetensors spells it
    unsigned bits;            // of one logical element, packed types included
    unsigned element_bytes;   // of one wisp element: 1, 2, 4 or 8
    unsigned exponent_shift;  // position of the exponent field inside the element's bits
    unsigned exponent_bits;   // 0: the type has no exponent, all elements are of one class
    bool sign_magnitude;      // values are ordered as sign and magnitude, not as integers
};

const DtypeTraits& traits_of(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view name);
std::optional<Dtype> dtype_from_code(std::uint64_t code);

struct TensorInfo {
    std::string name;
    Dtype dtype = Dtype::kU8;
    std::vector<std::uint64_t> shape;

    friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

/// Bytes of the tensor's data. kInvalid when the product overflows 64 bits or a packed tensor does
/// not end on a byte.
Result<std::uint64_t> byte_count_of(const TensorInfo& tensor);

/// Elements in wisp's sense. The tensor's byte count must be valid.
std::uint64_t element_count_of(const TensorInfo& tensor);

/// "[8192, 576]", for people.
std::string shape_text(const std::vector<std::uint64_t>& shape);

class Schema {
  public:
    Schema() = default;
    /// Sorts by name. kInvalid when two tensors share a name or a byte count is invalid.
    static Result<Schema> make(std::vector<TensorInfo> tensors);

    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    std::optional<std::size_t> find(std::string_view name) const;
    std::uint64_t total_elements() const { return total_elements_; }
    std::uint64_t total_bytes() const { return total_bytes_; }
    /// 32 hexadecimal digits over names, dtypes and shapes: doc/format.md section 4.
    const std::string& digest() const { return digest_; }

  private:
    std::vector<TensorInfo> tensors_;
    std::uint64_t total_elements_ = 0;
    std::uint64_t total_bytes_ = 0;
    std::string digest_;
};

/// kInvalid naming the first tensor that is missing, extra, or of another dtype or shape.
Result<void> require_same_schema(const Schema& expected, std::string_view expected_label,
                                 const Schema& actual, std::string_view actual_label);

}  // namespace wisp
