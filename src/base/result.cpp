#include "wisp/result.hpp"

namespace wisp {

std::string_view name_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::kInvalid: return "invalid";
        case ErrorKind::kNotFound: return "not_found";
        case ErrorKind::kCorrupt: return "corrupt";
        case ErrorKind::kWrongBase: return "wrong_base";
        case ErrorKind::kDenied: return "denied";
        case ErrorKind::kConflict: return "conflict";
        case ErrorKind::kFenced: return "fenced";
        case ErrorKind::kUnavailable: return "unavailable";
        case ErrorKind::kUnsupported: return "unsupported";
        case ErrorKind::kNoSpace: return "no_space";
        case ErrorKind::kNoRun: return "no_run";
        case ErrorKind::kGap: return "gap";
        case ErrorKind::kForked: return "forked";
        case ErrorKind::kIncapable: return "incapable";
        case ErrorKind::kInternal: return "internal";
    }
    return "internal";
}

}  // namespace wisp
