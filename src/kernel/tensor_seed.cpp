#include "kernel/tensor_seed.hpp"

#include "base/bytes.hpp"
#include "base/sha256.hpp"

namespace wisp {

void append_identity(Bytes& out, const TensorInfo& tensor) {
    append_varint(out, tensor.name.size());
    append_text(out, tensor.name);
    append_varint(out, static_cast<std::uint64_t>(tensor.dtype));
    append_varint(out, tensor.shape.size());
    for (const std::uint64_t extent : tensor.shape) append_varint(out, extent);
}

TensorSeed seed_of(const TensorInfo& tensor) {
    Bytes identity;
    append_text(identity, "wisp tensor 1");
    append_identity(identity, tensor);
    const Sha256Digest digest = sha256(identity);
    return {load_le<std::uint64_t>(digest.data()), load_le<std::uint64_t>(digest.data() + 8)};
}

std::vector<TensorSeed> seeds_of(const Schema& schema) {
    std::vector<TensorSeed> seeds;
    for (const TensorInfo& tensor : schema.tensors()) seeds.push_back(seed_of(tensor));
    return seeds;
}

}  // namespace wisp
