#include "arrays.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "bindings.hpp"
#include "calls.hpp"
#include "wisp/result.hpp"

namespace wisp::python {
namespace {

[[noreturn]] void refuse(const TensorInfo& tensor, const std::string& why) {
    raise(Error{ErrorKind::kInvalid,
                fmt::format("tensor '{}' ({} {}): {}", printable(tensor.name),
                            traits_of(tensor.dtype).name, shape_text(tensor.shape), why)});
}

}  // namespace

TensorInfo tensor_info(nb::handle entry) {
    TensorInfo tensor;
    tensor.name = nb::cast<std::string>(entry[0]);
    const auto dtype = nb::cast<std::string>(entry[1]);
    const auto parsed = parse_dtype(dtype);
    if (!parsed) {
        raise(
            Error{ErrorKind::kUnsupported, fmt::format("tensor '{}' has dtype {}, which "
                                                       "safetensors does not know",
                                                       printable(tensor.name), printable(dtype))});
    }
    tensor.dtype = *parsed;
    tensor.shape = nb::cast<std::vector<std::uint64_t>>(entry[2]);
    return tensor;
}

HeldBuffer::~HeldBuffer() {
    if (buffer_.obj == nullptr) return;
    const Locked lock;
    PyBuffer_Release(&buffer_);
}

bool HeldBuffer::hold(nb::handle object, bool writable) {
    const int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) == 0) return true;
    PyErr_Clear();
    buffer_.obj = nullptr;
    return false;
}

std::span<std::byte> HeldBuffer::bytes() const {
    return {static_cast<std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
}

HostWeights::HostWeights(nb::iterable tensors, bool writable) : writable_(writable) {
    std::vector<TensorInfo> infos;
    std::map<std::string, std::span<std::byte>> spans;
    for (const nb::handle entry : tensors) {
        TensorInfo tensor = tensor_info(entry);
        const std::uint64_t wanted = value_of(byte_count_of(tensor));
        buffers_.push_back(std::make_unique<HeldBuffer>());
        if (!buffers_.back()->hold(entry[3], writable)) {
            refuse(tensor, writable ? "its memory is not contiguous, or read-only"
                                    : "its memory is not contiguous, or not in this process");
        }
        const auto span = buffers_.back()->bytes();
        if (span.size() != wanted) {
            refuse(tensor,
                   fmt::format("needs {} bytes, but its memory has {}", wanted, span.size()));
        }
        spans[tensor.name] = span;
        infos.push_back(std::move(tensor));
    }
    schema_ = value_of(Schema::make(std::move(infos)));
    for (const TensorInfo& tensor : schema_.tensors()) spans_.push_back(spans[tensor.name]);
}

Schema schema_from(nb::handle entries) {
    std::vector<TensorInfo> tensors;
    for (const nb::handle entry : nb::iter(entries)) tensors.push_back(tensor_info(entry));
    return value_of(Schema::make(std::move(tensors)));
}

nb::list schema_list(const Schema& schema) {
    nb::list list;
    for (const TensorInfo& tensor : schema.tensors()) {
        const std::string_view dtype = traits_of(tensor.dtype).name;
        nb::list shape;
        for (const std::uint64_t size : tensor.shape) shape.append(size);
        list.append(
            nb::make_tuple(tensor.name, nb::str(dtype.data(), dtype.size()), nb::tuple(shape)));
    }
    return list;
}

void bind_arrays(nb::module_& module) {
    nb::class_<Weights>(module, "Weights", "Tensors by name, readable in place.")
        .def("__len__", [](const Weights& self) { return self.schema().tensors().size(); })
        .def_prop_ro(
            "schema", [](const Weights& self) { return schema_list(self.schema()); },
            nb::sig("def schema(self, /) -> list[tuple[str, str, tuple[int, ...]]]"),
            "[(name, dtype, shape), …] in ascending order of name.")
        .def_prop_ro("schema_digest", [](const Weights& self) { return self.schema().digest(); })
        .def_prop_ro("total_bytes", [](const Weights& self) { return self.schema().total_bytes(); })
        .def_prop_ro("total_elements",
                     [](const Weights& self) { return self.schema().total_elements(); });
    nb::class_<HostWeights, Weights>(module, "HostWeights",
                                     "Arrays that Python owns, seen without copying.")
        .def(nb::init<nb::iterable, bool>(), nb::arg("tensors"), nb::arg("writable") = false,
             nb::sig("def __init__(self, tensors: Iterable[tuple[str, str, tuple[int, ...], "
                     "object]], writable: bool = ...) -> None"))
        .def_prop_ro("writable", &HostWeights::is_writable);
}

}  // namespace wisp::python
