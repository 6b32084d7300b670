// The part of RunView that reads deltas: layers, one step, exponents.
#include <algorithm>
#include <chrono>
#include <future>
#include <span>

#include "layers.hpp"
#include "output.hpp"
#include "run_view.hpp"

namespace wisp::cli {
namespace {

constexpr auto kReadingTime = std::chrono::milliseconds(1200);
constexpr std::size_t kReadsAtATime = 4;
constexpr std::size_t kKeptSteps = 32;

const Json* find_kept(const std::deque<std::pair<std::uint64_t, Json>>& cache, std::uint64_t seq) {
    const auto at = std::ranges::find(cache, seq, &std::pair<std::uint64_t, Json>::first);
    return at == cache.end() ? nullptr : &at->second;
}

void keep(std::deque<std::pair<std::uint64_t, Json>>& cache, std::uint64_t seq, const Json& json) {
    cache.emplace_back(seq, json);
    if (cache.size() > kKeptSteps) cache.pop_front();
}

Json tensor_json(const TensorReport& tensor) {
    return {{"name", tensor.tensor.name},         {"dtype", traits_of(tensor.tensor.dtype).name},
            {"shape", tensor.tensor.shape},       {"elements", tensor.element_count},
            {"changed", tensor.changed_elements}, {"bytes", tensor.stored_bytes},
            {"blocks", blocks_json(tensor)}};
}

}  // namespace

std::vector<std::uint64_t> RunView::unread_steps() {
    std::vector<std::uint64_t> unread;
    const std::scoped_lock lock(mutex_);
    const std::uint64_t oldest = lines_.empty() ? 0 : lines_.front().commit.seq;
    std::erase_if(surveys_, [&](const auto& item) { return item.first < oldest; });
    for (const HistoryEntry& entry : lines_) {
        if (entry.commit.delta_bytes == 0 || surveys_.contains(entry.commit.seq)) continue;
        unread.push_back(entry.commit.seq);
    }
    std::ranges::reverse(unread);
    return unread;
}

std::size_t RunView::layer_index(const std::string& name) {
    const auto [at, fresh] = layer_numbers_.try_emplace(name, layer_names_.size());
    if (fresh) {
        layer_names_.push_back(name);
        layer_elements_.push_back(0);
    }
    return at->second;
}

void RunView::keep_survey(std::uint64_t seq, std::uint64_t step, const Result<FileReport>& report) {
    Survey survey;
    survey.number = ++surveys_read_;
    survey.step = step;
    if (!report) {
        survey.error = report.error().text;
    } else {
        for (const TensorReport& tensor : report->tensors) {
            const std::size_t layer = layer_index(layer_of(tensor.tensor.name));
            const auto [_, fresh] =
                tensor_elements_.try_emplace(tensor.tensor.name, tensor.element_count);
            if (fresh) layer_elements_[layer] += tensor.element_count;
            auto& [changed, bytes] = survey.layers[layer];
            changed += tensor.changed_elements;
            bytes += tensor.stored_bytes;
        }
    }
    surveys_[seq] = std::move(survey);
}

Result<Json> RunView::layers(std::uint64_t cursor) {
    std::map<std::uint64_t, std::uint64_t> steps;
    {
        const std::scoped_lock lock(mutex_);
        if (auto there = require_data(); !there) return std::unexpected(there.error());
        for (const HistoryEntry& entry : lines_) steps[entry.commit.seq] = entry.commit.step;
    }
    const std::scoped_lock lock(layers_mutex_);
    const std::vector<std::uint64_t> unread = unread_steps();
    const auto until = std::chrono::steady_clock::now() + kReadingTime;
    std::size_t done = 0;
    while (done < unread.size() && std::chrono::steady_clock::now() < until) {
        std::vector<std::future<Result<FileReport>>> reads;
        for (std::size_t i = done; i < std::min(done + kReadsAtATime, unread.size()); ++i) {
            reads.push_back(std::async(std::launch::async, [this, seq = unread[i]] {
                return survey_commit(access_.where, seq, access_.options);
            }));
        }
        for (auto& read : reads) {
            const Result<FileReport> report = read.get();
            if (!report && report.error().kind == ErrorKind::kUnavailable) {
                return std::unexpected(report.error());
            }
            keep_survey(unread[done], steps[unread[done]], report);
            ++done;
        }
    }
    Json json = {{"layers", Json::array()},
                 {"steps", Json::array()},
                 {"pending", unread.size() - done},
                 {"cursor", surveys_read_}};
    for (std::size_t i = 0; i < layer_names_.size(); ++i) {
        json["layers"].push_back({{"name", layer_names_[i]}, {"elements", layer_elements_[i]}});
    }
    for (const auto& [seq, survey] : surveys_) {
        if (survey.number <= cursor) continue;
        Json cells = Json::array();
        for (const auto& [layer, counts] : survey.layers) {
            cells.push_back({layer, counts.first, counts.second});
        }
        Json step = {{"seq", seq}, {"step", survey.step}, {"cells", std::move(cells)}};
        if (!survey.error.empty()) step["error"] = survey.error;
        json["steps"].push_back(std::move(step));
    }
    return json;
}

Result<Json> RunView::step(std::uint64_t seq) {
    const std::scoped_lock lock(steps_mutex_);
    if (const Json* kept = find_kept(steps_, seq)) return *kept;
    const auto report = report_step(access_.where, seq, access_.options);
    if (!report) return std::unexpected(report.error());
    const FileReport& file = report->file;
    Json json = {{"seq", seq},
                 {"step", file.step.value_or(0)},
                 {"codec", name_of(*file.codec)},
                 {"file_bytes", file.file_bytes},
                 {"payload_bytes", file.payload_bytes},
                 {"total_elements", file.total_elements},
                 {"changed_elements", file.changed_elements},
                 {"base", nullptr},
                 {"result", nullptr},
                 {"tensors", Json::array()},
                 {"forecast", Json::array()}};
    if (file.base) json["base"] = to_text(*file.base);
    if (file.result) json["result"] = to_text(*file.result);
    for (const TensorReport& tensor : file.tensors) json["tensors"].push_back(tensor_json(tensor));
    for (const ForecastShare& share : report->forecast) {
        json["forecast"].push_back({{"binade", share.binade}, {"share", share.share}});
    }
    keep(steps_, seq, json);
    return json;
}

Result<Json> RunView::exponents(std::uint64_t seq) {
    if (options_.work.empty()) {
        return fail(ErrorKind::kNotFound,
                    "exponents are counted only with --work DIR, which keeps a replica there");
    }
    const std::scoped_lock lock(exponents_mutex_);
    if (const Json* kept = find_kept(exponents_, seq)) return *kept;
    if (!counter_) {
        auto opened =
            ExponentCounter::open(access_.where, options_.work, access_.options, options_.threads);
        if (!opened) return std::unexpected(std::move(opened).error());
        counter_ = std::move(*opened);
    }
    const auto counted = counter_->count(seq);
    if (!counted) return std::unexpected(counted.error());
    Json json = {{"seq", seq}, {"binades", Json::array()}};
    for (const BinadeCount& count : *counted) {
        json["binades"].push_back(
            {{"binade", count.binade}, {"elements", count.elements}, {"changed", count.changed}});
    }
    keep(exponents_, seq, json);
    return json;
}

}  // namespace wisp::cli
