// Whether a store keeps the promises wisp builds on, found out by trying.
//
// Tables of compatible products are not believed: some answer every test made one request at a
// time, and still let both of two overlapping conditional writes win.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/result.hpp"
#include "wisp/store.hpp"

namespace wisp {

/// Undecided is what the store gave no answer to, which proves nothing against it.
enum class Verdict { kPass, kWarn, kFail, kSkipped, kUndecided };

/// "pass", "warn", "fail", "skipped" or "undecided". Stable across releases.
std::string_view name_of(Verdict verdict);

struct Finding {
    std::string name;  // stable across releases
    Verdict verdict = Verdict::kPass;
    std::string detail;
    std::string cure;  // empty when there is nothing to cure
};

struct DoctorReport {
    std::vector<Finding> findings;
    /// Several writers are safe from each other. False, unless undecided: use the store with one
    /// writer only.
    bool exclusive_create = false;
    /// A conditional write was seen to break its promise, or the store has none.
    bool convicted = false;
    /// A finding is kUndecided: examine it again when the store answers.
    bool undecided = false;
    /// Rounds in which several writers raced to create one object. Of a fault that shows in one
    /// round of n, 3 n rounds miss one examination in twenty.
    std::uint64_t races = 0;
    /// No finding is kFail.
    bool healthy = false;
};

struct DoctorOptions {
    /// Fewer and shorter races, and no object of several parts.
    bool quick = false;
    Progress progress = {};     // counts probes, not bytes
    std::stop_token stop = {};  // ends it early: wisp/control.hpp
};

/// Writes, reads and removes objects under "<prefix>/.wisp-doctor-<random>/" only. An error means
/// that nothing could be found out: the store was out of reach, or refused the first write.
Result<DoctorReport> examine(const Location& location, const DoctorOptions& options = {});

}  // namespace wisp
