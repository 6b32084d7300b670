#include "dashboard_page.hpp"

// As it lies in the tree: compiling half a megabyte of digits would take longer than the verb.
asm(R"(
    .pushsection .rodata
    .global wisp_dashboard_page_begin
    .global wisp_dashboard_page_end
wisp_dashboard_page_begin:
    .incbin ")" WISP_DASHBOARD_PAGE R"("
wisp_dashboard_page_end:
    .byte 0
    .popsection
)");

extern "C" {
extern const char wisp_dashboard_page_begin[];
extern const char wisp_dashboard_page_end[];
}

namespace wisp::cli {

std::string_view dashboard_page() {
    return {wisp_dashboard_page_begin, wisp_dashboard_page_end};
}

std::string page_with_data(std::string_view json) {
    std::string script = R"(<script id="wisp-report" type="application/json">)";
    // Whatever a name in the data says, it cannot end the script.
    for (const char c : json) {
        if (c == '<') {
            script += "\\u003c";
        } else {
            script += c;
        }
    }
    script += "</script>";
    std::string page(dashboard_page());
    // Before the page's own script, which looks for it when it starts.
    const auto at = page.find("<title>");
    page.insert(at == std::string::npos ? 0 : at, script);
    return page;
}

}  // namespace wisp::cli
