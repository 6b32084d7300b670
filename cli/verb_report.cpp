#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "dashboard_page.hpp"
#include "report_picture.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
    Common common;
    std::string run;
    std::string output;
    std::uint64_t steps = 50;
    ViewOptions view;
    TrustArguments trust;
};

bool is_picture(const fs::path& output) {
    return output.extension() == ".svg";
}

std::string page_of(const Json& everything) {
    return page_with_data(everything.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<void> write_text(const std::string& text, const fs::path& path) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (file) return {};
    return fail(ErrorKind::kDenied,
                fmt::format("cannot write {}; is there room, and may you write there?",
                            printable(path.string())));
}

/// The name appears when the file is whole.
Result<void> write_report(const Json& everything, const fs::path& output) {
    fs::path partial = output;
    partial += ".partial";
    auto written =
        write_text(is_picture(output) ? draw_report(everything) : page_of(everything), partial);
    std::error_code error;
    if (written) {
        fs::rename(partial, output, error);
        if (!error) return {};
        written =
            fail(ErrorKind::kDenied,
                 fmt::format("cannot write {}: {}", printable(output.string()), error.message()));
    }
    fs::remove(partial, error);
    return written;
}

int run(const ReportArguments& arguments) {
    const Stopwatch watch;
    const auto refuse = [&](const Error& error) {
        return report_error(arguments.common, "report", error);
    };
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
    if (!access) return refuse(access.error());
    ViewOptions options = arguments.view;
    options.threads = arguments.common.threads;
    RunView run_view(arguments.run, std::move(*access), options);
    const fs::path output = arguments.output;
    // A picture has no details of single steps.
    const auto everything = run_view.everything(is_picture(output) ? 0 : arguments.steps);
    if (!everything) return refuse(everything.error());
    if (const auto written = write_report(*everything, output); !written) {
        return refuse(written.error());
    }
    clear_progress();
    std::error_code ignored;
    const std::uint64_t bytes = fs::file_size(output, ignored);
    const std::size_t commits = (*everything)["commits"].size();
    if (arguments.common.json) {
        print_json({{"verb", "report"},
                    {"ok", true},
                    {"output", arguments.output},
                    {"bytes", bytes},
                    {"commits", commits},
                    {"steps_in_detail", (*everything)["steps"].size()},
                    {"seconds", watch.seconds()}});
    } else if (!arguments.common.quiet) {
        fmt::print("{}: {}, {} in detail, {}, in {}\n", printable(arguments.output),
                   counted(commits, "commit"), counted((*everything)["steps"].size(), "step"),
                   human_bytes(bytes), human_seconds(watch.seconds()));
    }
    return 0;
}

}  // namespace

void add_report(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("report", "Write the dashboard of a run into one file");
    auto arguments = std::make_shared<ReportArguments>();
    verb->add_option("run", arguments->run, "Address of the run")->required();
    verb->add_option("-o,--output", arguments->output,
                     "report.html: the page with its data; report.svg: one picture")
        ->required()
        ->check(accepted_by(
            [](const std::string& name) {
                return name.ends_with(".html") || name.ends_with(".svg")
                           ? std::string()
                           : "a report is .html or .svg, not " + printable(name);
            },
            "FILE"));
    verb->add_option("--commits", arguments->view.commits, "Show the newest N commits")
        ->check(in_range(1, 100'000))
        ->type_name("N")
        ->capture_default_str();
    verb->add_option("--steps", arguments->steps, "Keep the details of the newest N steps")
        ->check(in_range(0, 10'000))
        ->type_name("N")
        ->capture_default_str();
    verb->add_option("--work", arguments->view.work,
                     "Keep a replica in this folder meanwhile, to count which exponents changed")
        ->check(existing_folder())
        ->type_name("DIR");
    add_trust(*verb, arguments->trust);
    add_common(*verb, arguments->common, true);
    verb->footer(R"(Examples:
  wisp report s3://weights/qwen-rl -o report.html
  wisp report /shared/runs/a -o report.svg
  wisp report /shared/runs/a -o report.html --work /tmp)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
