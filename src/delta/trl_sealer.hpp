// TRL's sparse safetensors, as #5417 (plain) and #5932 (gap) write them, sealed by extra keys.
#pragma once

#include <map>

#include "base/spool.hpp"
#include "delta/delta_sealer.hpp"

namespace wisp {

class TrlSealer : public DeltaSealer {
  public:
    static Result<std::unique_ptr<DeltaSealer>> create(const std::filesystem::path& output,
                                                       Codec codec, const Schema& schema);
    Result<void> add(const EncodedBlock& block) override;
    Result<SealedObject> finish(DeltaFacts& facts) override;

  private:
    /// The data of all entries of one role and dtype, in the order they came.
    struct Section {
        Spool spool;
        std::vector<SafetensorsEntry> entries;
    };
    /// Wider dtypes first, as the safetensors writer orders them; indices before values.
    struct SectionOrder {
        bool operator()(const std::pair<Dtype, bool>& x, const std::pair<Dtype, bool>& y) const {
            return x.first != y.first ? x.first > y.first : x.second < y.second;
        }
    };

    TrlSealer(const std::filesystem::path& output, Codec codec, const Schema& schema,
              Spool positions, Spool values);
    Result<void> close_tensor();
    Result<void> move_to_section(Spool& from, const std::string& name, Dtype dtype,
                                 std::uint64_t count, bool is_values, bool narrow);
    Codec codec_;
    const Schema& schema_;
    Spool positions_;  // of the tensor whose blocks are coming in
    Spool values_;
    std::size_t tensor_ = 0;
    std::uint64_t changed_ = 0;
    bool wide_gaps_ = false;
    std::uint64_t total_changed_ = 0;
    std::vector<std::string> changed_names_;
    std::map<std::pair<Dtype, bool>, Section, SectionOrder> sections_;
};

/// Whether a tensor's flat indices need 64 bits.
bool needs_wide_indices(std::uint64_t element_count);

/// The dtype of a tensor's values: packed types go as bytes, which is what their positions count.
Dtype value_dtype(Dtype dtype);

}  // namespace wisp
