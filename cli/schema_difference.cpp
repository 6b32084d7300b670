#include "schema_difference.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "output.hpp"

namespace wisp::cli {
namespace {

constexpr std::size_t kNamesShown = 3;

/// One way in which tensors differ, with the first few by name.
class Difference {
  public:
    explicit Difference(std::string_view what, std::string_view what_one)
        : what_(what), what_one_(what_one) {}

    void add(std::string example) {
        if (++count_ <= kNamesShown) examples_.push_back(std::move(example));
    }

    void tell(std::vector<std::string>& into) const {
        if (count_ == 0) return;
        into.push_back(fmt::format("{} {} ({}{})", human_count(count_),
                                   count_ == 1 ? what_one_ : what_, fmt::join(examples_, ", "),
                                   count_ > kNamesShown ? ", …" : ""));
    }

  private:
    std::string_view what_, what_one_;
    std::uint64_t count_ = 0;
    std::vector<std::string> examples_;
};

}  // namespace

std::string schema_difference(const Schema& before, const Schema& after) {
    Difference added("tensors are new", "tensor is new");
    Difference missing("are missing", "is missing");
    Difference dtypes("have another dtype", "has another dtype");
    Difference shapes("have another shape", "has another shape");
    for (const TensorInfo& tensor : after.tensors()) {
        const auto at = before.find(tensor.name);
        if (!at) {
            added.add(printable(tensor.name));
            continue;
        }
        const TensorInfo& old = before.tensors()[*at];
        if (old.dtype != tensor.dtype) {
            dtypes.add(fmt::format("{}: {} instead of {}", printable(tensor.name),
                                   traits_of(tensor.dtype).name, traits_of(old.dtype).name));
        }
        if (old.shape != tensor.shape) {
            shapes.add(fmt::format("{}: {} instead of {}", printable(tensor.name),
                                   shape_text(tensor.shape), shape_text(old.shape)));
        }
    }
    for (const TensorInfo& tensor : before.tensors()) {
        if (!after.find(tensor.name)) missing.add(printable(tensor.name));
    }
    std::vector<std::string> told;
    for (const Difference* difference : {&added, &missing, &dtypes, &shapes}) {
        difference->tell(told);
    }
    return fmt::format("{}", fmt::join(told, ", "));
}

}  // namespace wisp::cli
