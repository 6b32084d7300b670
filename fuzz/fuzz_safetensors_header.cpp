// Any bytes as a safetensors file; what is accepted is written and read again unchanged.
#include "checkpoint/safetensors.hpp"
#include "fuzz_input.hpp"

using namespace wisp;

namespace {

void check(const Bytes& file) {
    const auto header = parse_safetensors(file, "fuzz");
    if (!header) {
        FUZZ_CHECK(header.error().kind == ErrorKind::kCorrupt ||
                   header.error().kind == ErrorKind::kUnsupported);
        return;
    }
    std::uint64_t end = 0;
    for (const SafetensorsEntry& entry : header->entries) {
        FUZZ_CHECK(entry.begin == end && entry.end >= entry.begin);
        FUZZ_CHECK(byte_count_of(entry.info).value_or(~0ULL) == entry.end - entry.begin);
        end = entry.end;
    }
    FUZZ_CHECK(header->data_offset + end == file.size());
    Bytes again = write_safetensors_header(header->entries, header->metadata);
    again.resize(again.size() + static_cast<std::size_t>(end));
    const auto back = parse_safetensors(again, "again");
    FUZZ_CHECK(back.has_value());
    FUZZ_CHECK(back->metadata == header->metadata);
    FUZZ_CHECK(back->entries.size() == header->entries.size());
    for (std::size_t i = 0; i < back->entries.size(); ++i) {
        FUZZ_CHECK(back->entries[i].info == header->entries[i].info);
        FUZZ_CHECK(back->entries[i].begin == header->entries[i].begin);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span given(reinterpret_cast<const std::byte*>(data), size);
    check(Bytes(given.begin(), given.end()));
    // Once more as JSON alone, with the length before it and as much data as it may ask for.
    if (size < 2) return 0;
    const std::size_t data_bytes = data[0];
    Bytes file;
    append_fixed(file, std::uint64_t{size - 1});
    file.insert(file.end(), given.begin() + 1, given.end());
    file.resize(file.size() + data_bytes);
    check(file);
    return 0;
}
