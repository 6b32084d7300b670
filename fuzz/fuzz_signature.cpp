// Any text as the signature block under a commit. Nothing but the block that was written passes,
// and what passes says who signed.
#include "fuzz_input.hpp"
#include "wisp/trust.hpp"

using namespace wisp;

namespace {

constexpr std::string_view kBody = "body";
constexpr std::int64_t kNow = 1'700'000'000'000;

SigningKey key_number(int number) {
    std::array<std::byte, 32> seed{};
    seed[0] = static_cast<std::byte>(number);
    return *SigningKey::from_seed(seed);
}

struct World {
    SigningKey root = key_number(1);
    SigningKey trainer = key_number(2);
    Certificate certificate = *Certificate::make(root, trainer.public_key(), 5, kNow + 86'400'000);
    std::string plain = *write_signature_block(trainer, std::nullopt, "commit", as_bytes(kBody));
    std::string certified = *write_signature_block(trainer, certificate, "commit", as_bytes(kBody));
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const World world;
    const std::string_view block(reinterpret_cast<const char*>(data), size);
    for (const bool by_root : {false, true}) {
        const SigningKey& key = by_root ? world.root : world.trainer;
        const auto signer = check_signature({key.public_key()}, "commit", as_bytes(kBody), block);
        if (!signer) {
            FUZZ_CHECK(signer.error().kind != ErrorKind::kInternal);
            FUZZ_CHECK(signer.error().kind != ErrorKind::kInvalid);
            continue;
        }
        FUZZ_CHECK(signer->key_id == world.trainer.public_key().id());
        // Older certificates of the same root are sound, and count no more.
        const bool current = check_current(*signer, 5, kNow).has_value();
        if (by_root && current) FUZZ_CHECK(block == world.certified && signer->serial == 5);
        // A certificate that is not needed is not looked into, beyond its form.
        if (!by_root) FUZZ_CHECK(block.starts_with(world.plain) && !signer->serial);
    }
    FUZZ_CHECK(!check_signature({}, "commit", as_bytes(kBody), block));
    if (const auto read = Certificate::parse(block)) {
        const std::string text = read->to_text();
        FUZZ_CHECK(block == text || block == text + "\n");
    }
    return 0;
}
