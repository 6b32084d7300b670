// A log of JSON lines: one object per event, appended whole, so that several processes may share a
// file and a reader never meets half a line.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "wisp/result.hpp"

namespace wisp::cli {

class EventLog {
  public:
    /// Makes the file, or goes on at its end.
    static Result<EventLog> open(const std::string& path);
    EventLog(EventLog&& other) noexcept;
    EventLog& operator=(EventLog&& other) noexcept;
    ~EventLog();

    /// Puts the time before the other fields.
    Result<void> write(const nlohmann::ordered_json& event);

  private:
    EventLog(int file, std::string path) : file_(file), path_(std::move(path)) {}

    int file_ = -1;
    std::string path_;
};

}  // namespace wisp::cli
