#include <utility>

#include "base/exchange_scope.hpp"

namespace wisp {
namespace {

thread_local const StopScope* innermost_scope = nullptr;

}  // namespace

StopScope::StopScope(std::stop_token stop)
    : before_(innermost_scope), around_(innermost_scope), stop_(std::move(stop)) {
    if (stop_.stop_possible()) innermost_scope = this;
}

StopScope::StopScope(const StopScope* handed_on) : before_(innermost_scope), around_(handed_on) {
    innermost_scope = this;
}

StopScope::StopScope(Milliseconds within)
    : before_(innermost_scope), around_(nullptr), end_(std::chrono::steady_clock::now() + within) {
    innermost_scope = this;
}

StopScope::~StopScope() {
    innermost_scope = before_;
}

const StopScope* StopScope::innermost() {
    return innermost_scope;
}

const StopScope* exchange_innermost(const StopScope* scope) {
    return std::exchange(innermost_scope, scope);
}

bool stopped() {
    for (const StopScope* scope = innermost_scope; scope != nullptr; scope = scope->around_) {
        if (scope->stop_.stop_requested()) return true;
        if (scope->end_ && std::chrono::steady_clock::now() >= *scope->end_) return true;
    }
    return false;
}

}  // namespace wisp
