#include "codec/sparse_header.hpp"

#include "codec/hazard.hpp"

namespace wisp {
namespace {

constexpr int kOctave = 8;        // codes per factor of two
constexpr int kMiddle = 7;        // the nibble of "as predicted"
constexpr unsigned kEscape = 15;  // the code follows in two nibbles, high first

int predicted(int previous) {
    return std::max(previous - kOctave, 0);
}

class NibbleWriter {
  public:
    explicit NibbleWriter(Bytes& out) : out_(out) {}
    void put(unsigned nibble) {
        if (half_) {
            out_.back() |= static_cast<std::byte>(nibble << 4);
        } else {
            out_.push_back(static_cast<std::byte>(nibble));
        }
        half_ = !half_;
    }

  private:
    Bytes& out_;
    bool half_ = false;
};

class NibbleReader {
  public:
    explicit NibbleReader(ByteReader& in) : in_(in) {}
    unsigned take() {
        if (!half_) byte_ = in_.fixed<std::uint8_t>();
        const unsigned nibble = half_ ? byte_ >> 4 : byte_ & 15;
        half_ = !half_;
        return nibble;
    }
    bool padding_is_zero() const { return !half_ || byte_ >> 4 == 0; }

  private:
    ByteReader& in_;
    unsigned byte_ = 0;
    bool half_ = false;
};

std::unexpected<Error> corrupt_header(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("sparse block: ") + what);
}

}  // namespace

WeightTable SparseHeader::weights() const {
    WeightTable table;
    for (std::size_t i = 0; i <= window.top; ++i) table.set(i, weight_of_code(weight_codes[i]));
    return table;
}

void write_sparse_header(const SparseHeader& header, Bytes& out) {
    append_varint(out, header.change_count);
    out.push_back(static_cast<std::byte>(header.window.top));
    out.push_back(static_cast<std::byte>(header.window.low));
    out.push_back(static_cast<std::byte>(header.hazard_shift));
    out.push_back(static_cast<std::byte>(header.weight_codes[0]));
    NibbleWriter nibbles(out);
    for (std::size_t i = 1; i <= header.window.top; ++i) {
        const int code = header.weight_codes[i];
        const int deviation = code - predicted(header.weight_codes[i - 1]) + kMiddle;
        if (deviation >= 0 && deviation < static_cast<int>(kEscape)) {
            nibbles.put(static_cast<unsigned>(deviation));
        } else {
            nibbles.put(kEscape);
            nibbles.put(static_cast<unsigned>(code) >> 4);
            nibbles.put(static_cast<unsigned>(code) & 15);
        }
    }
}

Result<SparseHeader> parse_sparse_header(ByteReader& in, const ExponentField& field,
                                         std::uint64_t element_count) {
    SparseHeader header;
    header.change_count = in.varint();
    header.window.top = in.fixed<std::uint8_t>();
    const std::uint64_t low = in.fixed<std::uint8_t>();
    header.hazard_shift = in.fixed<std::uint8_t>();
    const int first_code = in.fixed<std::uint8_t>();
    if (!in.ok()) return corrupt_header("ends inside its header");
    if (header.change_count == 0 || header.change_count > element_count) {
        return corrupt_header("more changes than elements, or none");
    }
    if (header.window.top >= kMaxClasses) return corrupt_header("more than 16 classes");
    if (low > field.largest() || header.window.top > field.largest() - low) {
        return corrupt_header("classes beyond the exponent field of the dtype");
    }
    header.window.low = static_cast<std::uint8_t>(low);
    if (header.hazard_shift < kMinHazardShift || header.hazard_shift > kMaxHazardShift) {
        return corrupt_header("hazard shift out of range");
    }
    int code = first_code;
    NibbleReader nibbles(in);
    for (std::size_t i = 0;; ++i) {
        if (code < 0 || code > static_cast<int>(kMaxWeightCode)) {
            return corrupt_header("weight code out of range");
        }
        header.weight_codes[i] = static_cast<std::uint8_t>(code);
        if (i == header.window.top) break;
        const unsigned nibble = nibbles.take();
        if (nibble == kEscape) {
            const unsigned high = nibbles.take();
            code = static_cast<int>(high << 4 | nibbles.take());
        } else {
            code = predicted(code) + static_cast<int>(nibble) - kMiddle;
        }
    }
    if (!in.ok()) return corrupt_header("ends inside its weights");
    if (!nibbles.padding_is_zero()) return corrupt_header("padding is not zero");
    return header;
}

}  // namespace wisp
