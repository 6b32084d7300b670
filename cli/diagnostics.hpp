// What a verb says on stderr besides its result: sentences for people, or with --log-format json
// one object per line, for programs that collect logs.
//
// The format is the process's, as its stderr is. Any thread may tell.
#pragma once

#include <string>

#include "command.hpp"
#include "wisp/result.hpp"

namespace wisp::cli {

enum class Level { kInfo, kWarning, kError };

/// --log-format, also WISP_LOG_FORMAT.
void add_log_format(Command& verb);
bool logs_json();

/// "wisp VERB: TEXT", or {"time", "level", "verb", "message"} and, of an error, "error" with its
/// kind.
void tell(Level level, const std::string& verb, const std::string& text);
void tell_error(Level level, const std::string& verb, ErrorKind kind, const std::string& text);

/// RFC 3339, in UTC, with milliseconds.
std::string log_time();

}  // namespace wisp::cli
