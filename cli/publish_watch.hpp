// `wisp publish --watch`: every checkpoint folder that becomes complete, in order of steps.
#pragma once

#include "publish_run.hpp"

namespace wisp::cli {

/// Until a signal or `until_step`; with `once`, until every folder there is was dealt with. Returns
/// the exit code.
int publish_folders(const PublishArguments& arguments);

}  // namespace wisp::cli
