// The calls of a store, as counters and injected faults name them.
#pragma once

#include <cstddef>
#include <string_view>

namespace wisp {

enum class StoreOperation { kPut, kCreate, kRead, kHead, kRemove, kList, kNow };

inline constexpr std::size_t kStoreOperations = 7;

constexpr std::string_view name_of(StoreOperation operation) {
    switch (operation) {
        case StoreOperation::kPut: return "put";
        case StoreOperation::kCreate: return "create";
        case StoreOperation::kRead: return "read";
        case StoreOperation::kHead: return "head";
        case StoreOperation::kRemove: return "remove";
        case StoreOperation::kList: return "list";
        case StoreOperation::kNow: return "now";
    }
    return "";
}

}  // namespace wisp
