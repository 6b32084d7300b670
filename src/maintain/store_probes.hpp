// The probes of `wisp doctor` that need one thread: each tries one promise of a store.
//
// A probe answers with a finding when the store behaved, well or badly, and with an error when it
// could not be tried. All work under `scratch`, and leave removing to the caller.
#pragma once

#include <cstddef>

#include "wisp/maintenance.hpp"

namespace wisp {

Result<Finding> probe_create_twice(const Location& scratch);
Result<Finding> probe_ranges(const Location& scratch);
Result<Finding> probe_overwrite(const Location& scratch);
Result<Finding> probe_remove(const Location& scratch);
Result<Finding> probe_listing(const Location& scratch);
Result<Finding> probe_key_characters(const Location& scratch);
Result<Finding> probe_clock(const Location& scratch);
/// A put of so many bytes, which a bucket takes in parts.
Result<Finding> probe_large_object(const Location& scratch, std::size_t size_bytes);

}  // namespace wisp
