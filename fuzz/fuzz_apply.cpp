// The whole way in: fuzzed blocks in a sealed file, verified, bound, decoded, proven, scattered.
#include <sys/mman.h>
#include <unistd.h>

#include "delta/delta_chain.hpp"
#include "delta/delta_directory.hpp"
#include "kernel/kernels.hpp"
#include "sealed_file.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

struct Base {
    Schema schema;
    std::vector<Bytes> tensors;
    StateDigest digest;
};

Base make_base() {
    Base base;
    base.schema = Schema::make({{"a", Dtype::kBf16, {200}},
                                {"b", Dtype::kF32, {65}},
                                {"c", Dtype::kU8, {64}},
                                {"d", Dtype::kF64, {10}}})
                      .value();
    FuzzInput nothing(nullptr, 0);
    for (const TensorInfo& tensor : base.schema.tensors()) {
        base.tensors.push_back(
            block_from(nothing, static_cast<std::size_t>(byte_count_of(tensor).value())));
        base.digest += active_kernels().mix_bytes(base.tensors.back().data(),
                                                  base.tensors.back().size(), seed_of(tensor), 0);
    }
    return base;
}

/// A file without a name on disk, read through /proc by those who want a path.
class MemoryFile {
  public:
    MemoryFile() : descriptor_(::memfd_create("wisp-fuzz", MFD_CLOEXEC)) {}
    std::filesystem::path fill(const Bytes& bytes) {
        FUZZ_CHECK(::ftruncate(descriptor_, 0) == 0);
        FUZZ_CHECK(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) ==
                   static_cast<ssize_t>(bytes.size()));
        return "/proc/self/fd/" + std::to_string(descriptor_);
    }

  private:
    int descriptor_;
};

Bytes file_from(FuzzInput& in, const Base& base) {
    DeltaDirectory directory;
    directory.log2_block_elements = 6 + static_cast<unsigned>(in.choice(3));
    Bytes blocks;
    for (const TensorInfo& tensor : base.schema.tensors()) {
        DirectoryTensor listed;
        listed.info = tensor;
        const std::uint64_t count =
            block_count_of(element_count_of(tensor), directory.log2_block_elements);
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto block = in.take(in.number<std::uint8_t>());
            blocks.insert(blocks.end(), block.begin(), block.end());
            listed.block_bytes.push_back(block.size());
            if (!block.empty()) listed.changed_elements = 1;
        }
        if (listed.changed_elements != 0) directory.tensors.push_back(std::move(listed));
    }
    const PackedDirectory packed = write_directory(directory).value();
    const StatedDigests stated{base.digest, base.digest, {}, base.schema.digest()};
    return compact_file(inflate_bytes(packed.bytes, packed.plain_bytes).value(), blocks, stated);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Base base = make_base();
    static MemoryFile memory;
    FuzzInput in(data, size);
    const auto path = memory.fill(file_from(in, base));
    const auto chain = DeltaChain::open({path}, base.schema);
    FUZZ_CHECK(chain.has_value());
    const BlockGrid grid(base.schema, chain->log2_block_elements());
    ChainWorker worker;
    ChainSums sums;
    sums.base = base.digest;
    StateDigest after = base.digest;
    for (std::uint64_t i = 0; i < grid.count(); ++i) {
        const BlockRange range = grid[i];
        const auto old_block = range.of(base.tensors[range.tensor]);
        const auto touched = chain->run(range, old_block, worker, sums);
        if (!touched) return 0;
        if (!*touched) continue;
        check_sound(worker.net, old_block, range.element_bytes);
        const auto mix = [&](std::span<const std::byte> block) {
            return active_kernels().mix_bytes(block.data(), block.size(), chain->seed(range.tensor),
                                              range.first_word());
        };
        after = after - mix(old_block) + mix(DeltaChain::new_block(old_block, worker));
    }
    // The stated result is the base: only a delta that changes nothing may be believed.
    const auto proof = chain->prove(sums.base, sums);
    if (proof) FUZZ_CHECK(proof->result == after && after == base.digest);
    return 0;
}
