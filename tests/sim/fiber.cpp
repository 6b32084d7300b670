#include "sim/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/exchange_scope.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace wisp::sim {
namespace {

constexpr std::size_t kStackBytes = 4 << 20;  // untouched pages cost nothing

// Stacks are used again: fresh pages cost more than all switches of a seed.
std::vector<void*>& idle_stacks() {
    static std::vector<void*> stacks;
    return stacks;
}

void* take_stack() {
    auto& idle = idle_stacks();
    if (!idle.empty()) {
        void* stack = idle.back();
        idle.pop_back();
        return stack;
    }
    void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::runtime_error("no memory for a fiber's stack");
    return stack;
}

void start_switch(void** save, const void* bottom, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(save, bottom, bytes);
#else
    (void)save, (void)bottom, (void)bytes;
#endif
}

void finish_switch(void* fake, const void** bottom, std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, bottom, bytes);
#else
    (void)fake, (void)bottom, (void)bytes;
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
    ::getcontext(&own_);
    own_.uc_stack.ss_sp = stack_;
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() {
    idle_stacks().push_back(stack_);
}

void Fiber::enter(unsigned high, unsigned low) {
    const auto self = (static_cast<std::uintptr_t>(high) << 32) | low;
    reinterpret_cast<Fiber*>(self)->run();
}

void Fiber::run() {
    finish_switch(nullptr, &outside_bottom_, &outside_bytes_);
    body_();
    done_ = true;
    start_switch(nullptr, outside_bottom_, outside_bytes_);
    ::swapcontext(&own_, &outside_);
}

void Fiber::resume() {
    void* fake = nullptr;
    start_switch(&fake, stack_, kStackBytes);
    const StopScope* const outside = exchange_innermost(scope_);
    ::swapcontext(&outside_, &own_);
    scope_ = exchange_innermost(outside);
    finish_switch(fake, nullptr, nullptr);
}

void Fiber::suspend() {
    start_switch(&own_fake_stack_, outside_bottom_, outside_bytes_);
    ::swapcontext(&own_, &outside_);
    finish_switch(own_fake_stack_, &outside_bottom_, &outside_bytes_);
}

}  // namespace wisp::sim
