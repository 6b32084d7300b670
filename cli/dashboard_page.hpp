// The page of the dashboard, built from dashboard/ and carried by the binary.
#pragma once

#include <string>
#include <string_view>

namespace wisp::cli {

/// One HTML file that needs no other.
std::string_view dashboard_page();

/// The same page with everything it would ask a server for inside it. `json` may be any JSON text.
std::string page_with_data(std::string_view json);

}  // namespace wisp::cli
