// Any text as model.safetensors.index.json; no name it yields may lead out of its folder.
#include "checkpoint/shard_index.hpp"
#include "fuzz_input.hpp"

using namespace wisp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const auto index = parse_shard_index(json, "fuzz");
    if (!index) {
        FUZZ_CHECK(index.error().kind == ErrorKind::kCorrupt);
        return 0;
    }
    for (const auto& [tensor, file] : *index) {
        FUZZ_CHECK(file.ends_with(".safetensors"));
        FUZZ_CHECK(file.front() != '.');
        FUZZ_CHECK(file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos);
    }
    return 0;
}
