// What a checkpoint consists of: tensors by name, dtype and shape, in ascending order of name.
//
// A Schema is immutable once made and identifies which checkpoints a delta can stand between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/dtype.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct TensorInfo {
    std::string name;
    Dtype dtype = Dtype::kU8;
    std::vector<std::uint64_t> shape;

    friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

/// Bytes of the tensor's data. kInvalid when the product overflows 64 bits or a packed tensor does
/// not end on a byte.
Result<std::uint64_t> byte_count_of(const TensorInfo& tensor);

/// Elements in wisp's sense (dtype.hpp). The tensor's byte count must be valid.
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
