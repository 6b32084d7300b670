// Checkpoints in a folder that vanishes with the test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "checkpoint/safetensors.hpp"
#include "expect_result.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {

namespace fs = std::filesystem;

class TempFolder {
  public:
    TempFolder() {
        std::string name = (fs::temp_directory_path() / "wisp-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
        path_ = name;
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    ~TempFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    fs::path operator/(std::string_view name) const { return path_ / name; }
    const fs::path& path() const { return path_; }
    std::size_t file_count() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
    }

  private:
    fs::path path_;
};

inline void write_bytes(const fs::path& path, std::span<const std::byte> bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

inline Bytes read_bytes(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + path.string());
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto bytes = as_bytes(text);
    return Bytes(bytes.begin(), bytes.end());
}

struct Tensor {
    TensorInfo info;
    Bytes bytes;
};

inline Bytes safetensors_file(const std::vector<Tensor>& tensors, const Metadata& metadata = {}) {
    std::vector<SafetensorsEntry> entries;
    Bytes data;
    for (const Tensor& tensor : tensors) {
        const std::uint64_t begin = data.size();
        data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
        entries.push_back({tensor.info, begin, data.size()});
    }
    Bytes file = write_safetensors_header(entries, metadata);
    file.insert(file.end(), data.begin(), data.end());
    return file;
}

inline Tensor random_tensor(std::string name, Dtype dtype, std::vector<std::uint64_t> shape,
                            Rng& rng) {
    Tensor tensor{{std::move(name), dtype, std::move(shape)}, {}};
    tensor.bytes = random_block(traits_of(dtype), Content::kWeights,
                                static_cast<std::size_t>(element_count_of(tensor.info)), rng);
    return tensor;
}

/// Small tensors of several widths: a scalar, an empty one, one that ends inside a word.
inline std::vector<Tensor> small_model(Rng& rng) {
    return {random_tensor("a.weight", Dtype::kBf16, {61, 17}, rng),
            random_tensor("b.bias", Dtype::kF32, {129}, rng),
            random_tensor("c.empty", Dtype::kF16, {0, 4}, rng),
            random_tensor("d.scalar", Dtype::kI64, {}, rng),
            random_tensor("e.packed", Dtype::kF4, {30}, rng),
            random_tensor("f.flags", Dtype::kBool, {77}, rng)};
}

inline std::vector<Tensor> changed_model(const std::vector<Tensor>& model, double share, Rng& rng) {
    std::vector<Tensor> changed = model;
    for (Tensor& tensor : changed) {
        tensor.bytes =
            changed_copy(tensor.bytes, traits_of(tensor.info.dtype), share, Change::kUlp, rng);
    }
    return changed;
}

}  // namespace wisp::testing
