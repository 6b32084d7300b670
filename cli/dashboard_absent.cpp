// Stands in for verb_dashboard.cpp and its server where wisp is built without them.
#include "verbs.hpp"

namespace wisp::cli {

void add_dashboard(Command&, Outcome&) {}

}  // namespace wisp::cli
