// How a demo is shown: a table redrawn in place on a terminal, lines elsewhere, JSON if asked.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "demo_proof.hpp"
#include "demo_story.hpp"
#include "output.hpp"

namespace wisp::cli {

struct DemoEnding {
    DemoProof proof;
    double seconds = 0;
    std::string run;  // where it was kept; empty: it was not
};

class DemoScreen {
  public:
    DemoScreen(const Common& common, const DemoStory& story);

    void begin(double learning_rate, unsigned layers, const std::string& run);
    /// What a process told, after the story has heard it.
    void show(const std::string& who, nlohmann::ordered_json line);
    /// Where nothing has happened for a while, the clock goes on.
    void tick();
    /// What goes on, where no process tells.
    void say(const std::string& what);
    void finish(const DemoEnding& ending);

  private:
    void draw();
    void print_trainer(const nlohmann::ordered_json& line) const;
    void print_follower(const std::string& who, const nlohmann::ordered_json& line) const;
    void print_summary(const DemoEnding& ending) const;
    void print_summary_json(const DemoEnding& ending) const;
    std::string follower_row(std::size_t index) const;

    Common common_;
    const DemoStory* story_;
    bool live_;
    unsigned lines_ = 0;  // of the table on the terminal
    std::string said_;
    Stopwatch watch_;
};

}  // namespace wisp::cli
