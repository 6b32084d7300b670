#include "checkpoint/shard_index.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "checkpoint/json_sax.hpp"

namespace wisp {
namespace {

bool is_bare_name(std::string_view name) {
    return name.size() <= 255 && name.ends_with(".safetensors") && name.front() != '.' &&
           name.find_first_of("/\\") == std::string_view::npos &&
           name.find('\0') == std::string_view::npos;
}

/// Takes "weight_map" and passes over whatever else the object holds, within the depth limit.
class IndexSax : public StrictSax {
  public:
    explicit IndexSax(std::map<std::string, std::string>& files) : files_(files) {}
    bool complete() const { return seen_manifest_; }

    bool null() override { return passing_over(); }
    bool boolean(bool) override { return passing_over(); }
    bool number_integer(number_integer_t) override { return passing_over(); }
    bool number_unsigned(number_unsigned_t) override { return passing_over(); }
    bool number_float(number_float_t, const string_t&) override { return passing_over(); }
    bool start_array(std::size_t) override {
        return in_manifest_ ? refuse("a weight_map that is not an object") : enter();
    }
    bool end_array() override { return leave(); }
    bool start_object(std::size_t) override { return enter(); }
    bool end_object() override { return leave(); }

    bool key(string_t& key) override {
        if (depth_ == 1) {
            in_manifest_ = key == "weight_map";
            if (in_manifest_ && std::exchange(seen_manifest_, true))
                return refuse("two weight_maps");
        }
        if (in_manifest_ && depth_ == 2) {
            tensor_ = key;
            if (files_.size() >= limits::kTensorCount) return refuse("too many tensors");
            if (files_.contains(key)) return refuse("tensor " + shown(key) + " twice");
        }
        return true;
    }

    bool string(string_t& value) override {
        if (!in_manifest_) return passing_over();
        if (depth_ != 2) return refuse("a weight_map that is not an object of file names");
        if (!is_bare_name(value)) {
            return refuse("the file name " + shown(value) +
                          ", which is not a bare .safetensors name");
        }
        files_.emplace(tensor_, value);
        return true;
    }

  private:
    bool passing_over() {
        if (depth_ == 0 || in_manifest_) return refuse("a value where none is allowed");
        return true;
    }
    bool enter() {
        if (in_manifest_ && depth_ >= 2)
            return refuse("a weight_map that is not an object of names");
        if (++depth_ > limits::kJsonDepth) return refuse("too deep a nesting");
        return true;
    }
    bool leave() {
        if (--depth_ == 1) in_manifest_ = false;
        return true;
    }
    std::map<std::string, std::string>& files_;
    unsigned depth_ = 0;
    bool in_manifest_ = false;
    bool seen_manifest_ = false;
    std::string tensor_;
};

}  // namespace

Result<std::map<std::string, std::string>> parse_shard_index(std::string_view json,
                                                             std::string_view label) {
    std::map<std::string, std::string> files;
    IndexSax sax(files);
    std::string problem;
    if (json.size() > limits::kIndexJsonBytes) {
        problem = "more than 100 MB";
    } else if (json.find('\0') != std::string_view::npos) {
        problem = "a zero byte";
    } else if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) {
        problem = sax.problem();
    } else if (!sax.complete()) {
        problem = "no weight_map";
    } else if (files.empty()) {
        problem = "an empty weight_map";
    }
    if (problem.empty()) return files;
    return fail(ErrorKind::kCorrupt, fmt::format("{} is not a valid shard index: it has {}; fetch "
                                                 "or write it again",
                                                 shown(label), problem));
}

}  // namespace wisp
