#include "checkpoint/other_formats.hpp"

#include "base/bytes.hpp"

namespace wisp {
namespace {

constexpr OtherFormat kTorch = {
    "a PyTorch file (.pt, .bin, .ckpt)",
    "load it with torch.load(..., weights_only=True) and write the tensors with "
    "safetensors.torch.save_file, or load the folder with from_pretrained and write it with "
    "save_pretrained"};

struct Signature {
    std::string_view first_bytes;
    OtherFormat format;
};

constexpr Signature kSignatures[] = {
    {"PK\x03\x04", kTorch},  // a zip archive, which torch.save has written since 1.6
    {"\x80\x02", kTorch},    // a bare pickle, which it wrote before
    {"\x80\x04\x95", kTorch},
    {"GGUF",
     {"a GGUF file of llama.cpp",
      "its weights are quantised for that program; load it with "
      "transformers' from_pretrained(..., gguf_file=...) and write it with save_pretrained"}},
    {"\x89HDF\r\n\x1a\n",
     {"an HDF5 file (.h5)", "load it with its framework and write safetensors"}},
    {"\x93NUMPY", {"a NumPy array (.npy)", "write it with safetensors.numpy.save_file"}},
    {"\x1f\x8b", {"packed by gzip", "unpack it first"}},
    {"\x28\xb5\x2f\xfd", {"packed by zstd", "unpack it first"}},
    {"version https://git-lfs",
     {"a pointer of Git LFS, not the weights", "run 'git lfs pull' where it was cloned"}},
    {"<!DOCTYPE", {"a web page, not weights", "download it again and look at the address"}},
    {"<html", {"a web page, not weights", "download it again and look at the address"}},
};

}  // namespace

std::optional<OtherFormat> recognise_format(std::span<const std::byte> head) {
    const std::string_view text = as_text(head);
    for (const Signature& known : kSignatures) {
        if (text.starts_with(known.first_bytes)) return known.format;
    }
    return std::nullopt;
}

}  // namespace wisp
