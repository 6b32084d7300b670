// Which wisp this is. The text is made by cmake/version.cmake at every build.
#pragma once

namespace wisp::cli {

extern const char* const kVersion;
/// The commit it was built from, "-dirty" after it when files differed; empty when unknown.
extern const char* const kCommit;

}  // namespace wisp::cli
