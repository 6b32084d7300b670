// A journal with a sound frame and fuzzed records: replaying it may fail, but the checkpoint's file
// keeps its size, and nothing outside the records' reach is written.
#include <unistd.h>

#include <fstream>

#include "checkpoint/journal_path.hpp"
#include "checkpoint/safetensors.hpp"
#include "delta/journal.hpp"
#include "fuzz_input.hpp"

using namespace wisp;
using namespace wisp::fuzz;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kDataBytes = 4096;

void write_file(const fs::path& path, const Bytes& bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
}

class Bench {
  public:
    Bench() {
        const bool fast = fs::is_directory("/dev/shm");
        std::string name = (fs::path(fast ? "/dev/shm" : "/tmp") / "wisp-fuzz-XXXXXX").string();
        FUZZ_CHECK(::mkdtemp(name.data()) != nullptr);
        folder = name;
        path = folder / "c.safetensors";
        image = write_safetensors_header({{{"t", Dtype::kU8, {kDataBytes}}, 0, kDataBytes}}, {});
        image.resize(image.size() + kDataBytes);
        write_file(path, image);
        files = {{path, image.size(), image.size() - kDataBytes}};
    }
    ~Bench() {
        std::error_code ignored;
        fs::remove_all(folder, ignored);
    }
    fs::path folder;
    fs::path path;
    Bytes image;
    std::vector<CheckpointFile> files;
};

/// Magic, digests and hash around a body: the file list and the records, or the records alone.
Bytes journal_around(FuzzInput& in, const Bench& bench) {
    Bytes body;
    if (in.choice(8) != 0) {
        body.push_back(static_cast<std::byte>(in.choice(2)));
        append_varint(body, 1);
        const std::string name = bench.path.filename().string();
        append_varint(body, name.size());
        append_text(body, name);
        append_fixed(body, std::uint64_t{bench.image.size()});
    }
    const auto rest = in.rest();
    body.insert(body.end(), rest.begin(), rest.end());
    const Bytes digests(32);
    const Sha256Digest hash = Sha256().add(body).add(digests).finish();
    Bytes journal;
    append_text(journal, "WISPJRN1");
    for (const std::span<const std::byte> part :
         {std::span<const std::byte>(digests), std::span<const std::byte>(body),
          std::span<const std::byte>(hash)}) {
        journal.insert(journal.end(), part.begin(), part.end());
    }
    return journal;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Bench bench;
    FuzzInput in(data, size);
    const bool framed = in.choice(16) != 0;
    Bytes journal_bytes;
    if (framed) {
        journal_bytes = journal_around(in, bench);
    } else {
        const auto rest = in.rest();
        journal_bytes.assign(rest.begin(), rest.end());
    }
    write_file(journal_path(bench.path), journal_bytes);
    const auto journal = Journal::open(bench.path, bench.files);
    if (!journal) return 0;
    FUZZ_CHECK(framed);
    const auto walked =
        journal->for_each([](const Journal::Record&) -> Result<void> { return {}; });
    const auto replayed = replay(*journal, bench.files, JournalSide::kNew);
    if (!walked) FUZZ_CHECK(!replayed.has_value());
    FUZZ_CHECK(fs::file_size(bench.path) == bench.image.size());
    if (replayed) FUZZ_CHECK(replay(*journal, bench.files, JournalSide::kOld).has_value());
    return 0;
}
