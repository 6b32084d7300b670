#include "told_move.hpp"

#include <fcntl.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <span>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "job_threads.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// The blocks of one tensor.
struct MovedTensor {
    std::span<const MovedBlock> blocks;
    const TensorInfo* info;
    std::size_t count = 0;
    std::size_t place_bytes = 4;
    std::size_t at = 0;  // in the file

    std::size_t width() const { return blocks[0].changes.element_bytes; }
};

constexpr std::size_t padded(std::size_t bytes) {
    return (bytes + 7) / 8 * 8;
}

std::vector<MovedTensor> by_tensor(const ReplicaMove& move) {
    std::vector<MovedTensor> found;
    const std::span<const MovedBlock> blocks = *move.blocks;
    for (std::size_t first = 0; first < blocks.size();) {
        const std::size_t tensor = blocks[first].tensor;
        std::size_t past = first;
        MovedTensor moved;
        for (; past < blocks.size() && blocks[past].tensor == tensor; ++past) {
            moved.count += blocks[past].changes.count();
        }
        moved.blocks = blocks.subspan(first, past - first);
        moved.info = &move.weights->schema().tensors()[tensor];
        if (element_count_of(*moved.info) >= std::uint64_t{1} << 32) moved.place_bytes = 8;
        found.push_back(moved);
        first = past;
    }
    return found;
}

nb::object bytearray_of(const void* data, std::size_t size) {
    return nb::steal(PyByteArray_FromStringAndSize(static_cast<const char*>(data),
                                                   static_cast<Py_ssize_t>(size)));
}

/// Calls body(place) for each change.
template <class Body>
void each_place(const MovedTensor& tensor, Body&& body) {
    for (const MovedBlock& block : tensor.blocks) {
        for (const std::uint32_t position : block.changes.positions) {
            body(block.first_element + position);
        }
    }
}

using Bits = std::vector<std::byte> BlockChanges::*;

nb::object bits_of(const MovedTensor& tensor, Bits bits) {
    std::vector<std::byte> all;
    for (const MovedBlock& block : tensor.blocks) {
        const std::vector<std::byte>& from = block.changes.*bits;
        all.insert(all.end(), from.begin(), from.end());
    }
    return bytearray_of(all.data(), all.size());
}

Bits bits_now(const ReplicaMove& move) {
    return move.back ? &BlockChanges::old_bits : &BlockChanges::new_bits;
}

Bits bits_before(const ReplicaMove& move) {
    return move.back ? &BlockChanges::new_bits : &BlockChanges::old_bits;
}

/// A file that is being written from several threads.
class NewFile {
  public:
    explicit NewFile(const std::string& path)
        : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
        if (file_ < 0) error_ = errno;
    }
    ~NewFile() {
        if (file_ >= 0) ::close(file_);
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    void write(std::span<const std::byte> bytes, std::size_t at) {
        while (!bytes.empty() && error_ == 0) {
            const ssize_t done =
                ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(at));
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) {
                error_ = done < 0 ? errno : EIO;
                return;
            }
            bytes = bytes.subspan(static_cast<std::size_t>(done));
            at += static_cast<std::size_t>(done);
        }
    }
    void write_bits(const MovedTensor& tensor, Bits bits, std::size_t at) {
        for (const MovedBlock& block : tensor.blocks) {
            write(block.changes.*bits, at);
            at += (block.changes.*bits).size();
        }
    }
    /// Some at a time, so that what is written is still near.
    template <class Place>
    void write_places(const MovedTensor& tensor, std::size_t at) {
        std::array<Place, 1U << 13> some;
        std::size_t count = 0;
        const auto put_down = [&] {
            write(std::as_bytes(std::span(some).first(count)), at);
            at += count * sizeof(Place);
            count = 0;
        };
        each_place(tensor, [&](std::uint64_t place) {
            some[count] = static_cast<Place>(place);
            if (++count == some.size()) put_down();
        });
        put_down();
    }
    /// So that what is padded is there, too.
    void set_size(std::size_t size) {
        if (error_ == 0 && ::ftruncate(file_, static_cast<off_t>(size)) != 0) error_ = errno;
    }
    int error() const { return error_; }

  private:
    int file_;
    std::atomic<int> error_ = 0;
};

}  // namespace

const ReplicaMove& ToldMove::move() const {
    if (move_ == nullptr) {
        raise(Error{ErrorKind::kInvalid,
                    "this move was told and is gone; copy what is needed while it is told"});
    }
    return *move_;
}

nb::list ToldMove::tensors(const std::optional<std::vector<std::string>>& names) const {
    nb::list list;
    const nb::list schema = schema_list(move().weights->schema());
    for (const MovedTensor& tensor : by_tensor(move())) {
        if (names && std::ranges::find(*names, tensor.info->name) == names->end()) continue;
        std::vector<std::int64_t> places;
        places.reserve(tensor.count);
        each_place(tensor, [&](std::uint64_t place) {
            places.push_back(static_cast<std::int64_t>(place));
        });
        const nb::handle info = schema[tensor.blocks[0].tensor];
        list.append(nb::make_tuple(
            info[0], info[1], info[2], bytearray_of(places.data(), places.size() * 8),
            bits_of(tensor, bits_now(move())), bits_of(tensor, bits_before(move()))));
    }
    return list;
}

std::vector<std::pair<std::string, std::size_t>> ToldMove::write(const std::string& path,
                                                                 bool with_old) const {
    const ReplicaMove& told_move = move();
    std::vector<MovedTensor> tensors = by_tensor(told_move);
    std::vector<std::pair<std::string, std::size_t>> told;
    std::size_t at = 0;
    for (MovedTensor& tensor : tensors) {
        tensor.at = at;
        at += padded(tensor.count * tensor.place_bytes) +
              (with_old ? 2 : 1) * padded(tensor.count * tensor.width());
        told.emplace_back(tensor.info->name, tensor.count);
    }
    int error = 0;
    {
        const Unlocked unlocked;
        std::vector<const MovedTensor*> order;
        for (const MovedTensor& tensor : tensors) order.push_back(&tensor);
        std::ranges::stable_sort(order, std::greater<>{}, &MovedTensor::count);
        NewFile file(path);
        file.set_size(at);
        for_each_job(order.size(), [&](std::size_t i) {
            const MovedTensor& tensor = *order[i];
            std::size_t to = tensor.at;
            if (tensor.place_bytes == 4) {
                file.write_places<std::uint32_t>(tensor, to);
            } else {
                file.write_places<std::int64_t>(tensor, to);
            }
            to += padded(tensor.count * tensor.place_bytes);
            file.write_bits(tensor, bits_now(told_move), to);
            to += padded(tensor.count * tensor.width());
            if (with_old) file.write_bits(tensor, bits_before(told_move), to);
        });
        error = file.error();
    }
    if (error != 0) {
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
        nb::raise_python_error();
    }
    return told;
}

void bind_told_move(nb::module_& module) {
    nb::class_<ToldMove>(module, "ToldMove", "A proven move; valid while it is being told.")
        .def(
            "tensors", &ToldMove::tensors, "names"_a = nb::none(),
            nb::sig("def tensors(self, names: Sequence[str] | None = None) -> list[tuple[str, str, "
                    "tuple[int, ...], bytearray, bytearray, bytearray]]"))
        .def("write", &ToldMove::write, "path"_a, "with_old"_a);
}

}  // namespace wisp::python
