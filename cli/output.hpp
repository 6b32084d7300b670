// How the command line speaks: results on stdout, progress and errors on stderr, exit codes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "wisp/wisp.hpp"

namespace wisp::cli {

/// The options every verb has.
struct Common {
    bool json = false;
    bool quiet = false;
    bool verbose = false;
    unsigned threads = 0;
    std::string verb;
};

/// The exit code of each kind of failure; the table is in doc/cli.md.
int exit_code(ErrorKind kind);

/// Prints the error, as JSON too if asked, and returns its exit code.
int report_error(const Common& common, const std::string& verb, const Error& error);

/// A bar on stderr when that is a terminal, with -v each phase and its time; else nothing.
Progress progress_bar(const Common& common);
/// For work that is counted in probes, not in bytes.
Progress probe_line(const Common& common);
/// Removes the bar, before anything else is printed.
void clear_progress();

std::string human_bytes(std::uint64_t bytes);
/// 0 where there is nothing to compare with.
double ratio(std::uint64_t x, std::uint64_t y);
std::string human_count(std::uint64_t count);
/// "1 tensor", "1,234 tensors".
std::string counted(std::uint64_t count, std::string_view noun);
std::string human_seconds(double seconds);
/// "■■■■····" of a width, filled to a share between 0 and 1.
std::string bar(double share, unsigned width);

/// How many blocks of a tensor are stored in which way, by name.
nlohmann::ordered_json blocks_json(const TensorReport& tensor);
void print_json(const nlohmann::ordered_json& value);

class Stopwatch {
  public:
    Stopwatch();
    double seconds() const;

  private:
    std::int64_t start_;
};

}  // namespace wisp::cli
