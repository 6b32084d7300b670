// A record's last word about itself: doc/protocol.md section 3.
//
//   line := "{" members ',"check":"' 16 hexadecimal digits '"}' "\n"
//
// The digits are the first 16 of the SHA-256 over the line without its check. It
// tells a bit that fell over on the way, or on a disk, from what was written: a writer that built
// on such a commit would break the log for everyone. Against forgery there are signatures.
#pragma once

#include <string>
#include <string_view>

namespace wisp {

/// `line` is a JSON object with at least one member, and a newline.
std::string with_check(std::string_view line);
/// Whether `line` ends in its check, and is what the check was made for.
bool check_holds(std::string_view line);

}  // namespace wisp
