// The ranks of a sharded trainer, and the one that commits. Calls and shard manifests cross as they
// travel between ranks: a line of text, and bytes.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "reports.hpp"
#include "runs.hpp"
#include "wisp/follower.hpp"
#include "wisp/sharded_publisher.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;
namespace fs = std::filesystem;

using SchemaEntry = std::tuple<std::string, std::string, std::vector<std::uint64_t>>;
using SpanEntry = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

Schema schema_of(const std::vector<SchemaEntry>& entries) {
    std::vector<TensorInfo> tensors;
    for (const auto& [name, dtype, shape] : entries) {
        const auto parsed = parse_dtype(dtype);
        if (!parsed) {
            raise(Error{ErrorKind::kUnsupported, "safetensors does not know the dtype " + dtype});
        }
        tensors.push_back({name, *parsed, shape});
    }
    return value_of(Schema::make(std::move(tensors)));
}

std::optional<std::string> text_of(const std::optional<StateDigest>& digest) {
    return digest ? std::optional(to_text(*digest)) : std::nullopt;
}

nb::bytes bytes_of(const std::vector<std::byte>& bytes) {
    return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

ShardWriter open_writer(const Location& where, const std::vector<SchemaEntry>& schema,
                        std::uint64_t rank, const std::vector<SpanEntry>& spans,
                        const OptionalPath& scratch, unsigned threads, unsigned log2,
                        std::uint64_t inline_bytes, std::uint64_t part_bytes) {
    std::vector<BlockSpan> blocks;
    for (const auto& [tensor, first, count] : spans) blocks.push_back({tensor, first, count});
    ShardOptions options;
    options.threads = threads;
    options.inline_bytes = inline_bytes;
    options.part_bytes = part_bytes;
    options.scratch = scratch.value_or(fs::path());
    return value_of(
        ShardWriter::open(where, schema_of(schema), rank, std::move(blocks), options, log2));
}

void add(ShardWriter& self, const nb::list& spans) {
    std::vector<std::unique_ptr<HeldBuffer>> held;
    std::vector<std::span<const std::byte>> views;
    for (const nb::handle span : spans) {
        held.push_back(std::make_unique<HeldBuffer>());
        if (!held.back()->hold(span, false)) {
            raise(Error{ErrorKind::kInvalid, "the memory of a span is not contiguous"});
        }
        views.push_back(held.back()->bytes());
    }
    long_call([&] { return self.add(views); });
}

void bind_writer(nb::module_& module) {
    module.attr("LOG2_BLOCK_ELEMENTS") = kLog2BlockElements;
    nb::class_<DeliveredShard>(module, "DeliveredShard", "What one rank's part of a step came to.")
        .def_ro("bytes", &DeliveredShard::bytes)
        .def_ro("changed_elements", &DeliveredShard::changed_elements);
    nb::class_<ShardWriter>(module, "ShardWriter", "One rank's blocks, coded and uploaded.")
        .def_prop_ro("base", [](const ShardWriter& self) { return text_of(self.base()); })
        .def(
            "adopt",
            [](ShardWriter& self, const fs::path& folder, const std::string& state) {
                const StateDigest digest = digest_from(state);
                long_call([&]() -> Result<void> {
                    const auto checkpoint = Checkpoint::open(folder);
                    if (!checkpoint) return std::unexpected(checkpoint.error());
                    return self.adopt(*checkpoint, digest);
                });
            },
            "folder"_a, "state"_a, "Takes this rank's blocks out of a checkpoint folder.")
        .def(
            "begin",
            [](ShardWriter& self, const std::string& call) {
                value_of(self.begin(value_of(parse_call(call))));
            },
            "call"_a)
        .def("add", &add, "spans"_a,
             nb::sig("def add(self, spans: collections.abc.Sequence[object]) -> None"),
             "The bytes of the next spans.")
        .def("finish", [](ShardWriter& self) { long_call([&] { return self.finish(); }); })
        .def(
            "deliver",
            [](ShardWriter& self, const std::string& call) {
                const ShardCall parsed = value_of(parse_call(call));
                return bytes_of(long_call([&] { return self.deliver(parsed); }));
            },
            "call"_a)
        .def(
            "advance",
            [](ShardWriter& self, const std::string& state) {
                const StateDigest digest = digest_from(state);
                long_call([&] { return self.advance(digest); });
            },
            "state"_a)
        .def_prop_ro("delivered", &ShardWriter::delivered,
                     "What the last delivery of a step came to.")
        .def("drop", &ShardWriter::drop);
    module.def("open_shard_writer", &open_writer, "where"_a, "schema"_a, "rank"_a, "spans"_a,
               "scratch"_a = nb::none(), "threads"_a = 0, "log2"_a = kLog2BlockElements,
               "inline_bytes"_a = ShardOptions().inline_bytes,
               "part_bytes"_a = ShardOptions().part_bytes);
}

/// Rank 0, for one schema.
struct ShardCommitter {
    Schema schema;
    ShardedPublisher publisher;

    std::vector<std::vector<std::byte>> manifests_of(const nb::list& manifests) const {
        std::vector<std::vector<std::byte>> out;
        for (const nb::handle manifest : manifests) {
            const auto bytes = nb::cast<nb::bytes>(manifest);
            const auto* data = reinterpret_cast<const std::byte*>(bytes.c_str());
            out.emplace_back(data, data + bytes.size());
        }
        return out;
    }
};

ShardCommitter open_committer(const Location& where, const std::vector<SchemaEntry>& schema,
                              std::uint64_t anchor_every, const Trust& trust,
                              const OptionalPath& sign_key, const OptionalPath& certificate,
                              const std::map<std::string, std::string>& metadata,
                              const std::vector<fs::path>& side_files, const OptionalPath& scratch,
                              std::optional<double> expires_after) {
    WriterOptions options;
    options.run = run_options(trust);
    options.signer = run_signer(sign_key, certificate);
    options.anchor_every = anchor_every;
    options.metadata = metadata;
    options.side_files = side_files;
    if (expires_after) {
        options.expires_after = Milliseconds(static_cast<std::int64_t>(*expires_after * 1000));
    }
    return {schema_of(schema), long_call([&] {
                return ShardedPublisher::open(where, scratch.value_or(fs::path()), options);
            })};
}

void bind_committer(nb::module_& module) {
    nb::class_<ShardCommitter>(module, "ShardCommitter", "Rank 0: calls the ranks, and commits.")
        .def(
            "call",
            [](ShardCommitter& self, std::uint64_t step, bool whole) {
                return write_call(
                    long_call([&] { return self.publisher.call(self.schema, step, whole); }));
            },
            "step"_a, "whole"_a = false)
        .def(
            "commit",
            [](ShardCommitter& self, const std::string& call, const nb::list& manifests) {
                const ShardCall parsed = value_of(parse_call(call));
                const auto bytes = self.manifests_of(manifests);
                return long_call([&] { return self.publisher.commit(parsed, self.schema, bytes); });
            },
            "call"_a, "manifests"_a,
            nb::sig("def commit(self, call: str, manifests: list[bytes]) -> PublishReport"))
        .def_prop_ro("landing",
                     [](const ShardCommitter& self) { return text_of(self.publisher.result()); })
        .def("anchor_call",
             [](const ShardCommitter& self) {
                 const auto call = self.publisher.anchor_call();
                 return call ? std::optional(write_call(*call)) : std::nullopt;
             })
        .def(
            "commit_anchor",
            [](ShardCommitter& self, const std::string& call, const nb::list& manifests) {
                const ShardCall parsed = value_of(parse_call(call));
                const auto bytes = self.manifests_of(manifests);
                return long_call(
                    [&] { return self.publisher.commit_anchor(parsed, self.schema, bytes); });
            },
            "call"_a, "manifests"_a,
            nb::sig("def commit_anchor(self, call: str, manifests: list[bytes]) -> PublishReport"))
        .def("heartbeat",
             [](ShardCommitter& self) { long_call([&] { return self.publisher.heartbeat(); }); })
        .def_prop_ro("next_step",
                     [](const ShardCommitter& self) { return self.publisher.next_step(); })
        .def_prop_ro("has_state",
                     [](const ShardCommitter& self) { return self.publisher.at().state_seq != 0; })
        .def_prop_ro("run", [](const ShardCommitter& self) { return self.publisher.run(); });
    module.def("open_shard_committer", &open_committer, "where"_a, "schema"_a, "anchor_every"_a = 0,
               "trust"_a = Trust{}, "sign_key"_a = nb::none(), "certificate"_a = nb::none(),
               "metadata"_a = WriterOptions().metadata, "side_files"_a = std::vector<fs::path>{},
               "scratch"_a = nb::none(), "expires_after"_a = nb::none());
}

}  // namespace

void bind_sharding(nb::module_& module) {
    bind_writer(module);
    bind_committer(module);
    module.def(
        "pull_head",
        [](const Location& where, const fs::path& folder, const Trust& trust, unsigned threads) {
            FollowOptions options;
            options.run = run_options(trust);
            options.threads = threads;
            return long_call([&]() -> Result<std::optional<std::string>> {
                FolderReplicaOptions scratch;
                scratch.threads = threads;
                scratch.durable = false;
                auto replica = open_folder_replica(folder, scratch);
                if (!replica) return std::unexpected(std::move(replica).error());
                auto follower = Follower::open(where, **replica, options);
                if (!follower) return std::unexpected(std::move(follower).error());
                const auto report = follower->catch_up();
                if (!report) return std::unexpected(report.error());
                if (report->at.state_seq == 0) return std::nullopt;
                return to_text(report->at.state);
            });
        },
        "where"_a, "folder"_a, "trust"_a = Trust{}, "threads"_a = 0,
        "The newest state into a folder; its digest, or None when there is none yet.");
    module.def(
        "call_base",
        [](const std::string& call) {
            const ShardCall parsed = value_of(parse_call(call));
            return parsed.part == ShardPart::kWhole ? std::nullopt
                                                    : std::optional(to_text(parsed.base));
        },
        "call"_a, "The state that a call stands on; None when it asks for whole weights.");
}

}  // namespace wisp::python
