// SPDX-License-Identifier: Apache-2.0
//
// Collectives and messages. All are calls without a name.
#include <algorithm>
#include <complex>
#include <memory>
#include <new>
#include <string>

#include "mpiabi/abi.hpp"

namespace kolo::mpiabi {
namespace {

/// Elements `first` to `first + count` of what every rank has of a whole, of `all` elements.
struct Part {
  std::int64_t all = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// The product of complex numbers, which is no product of pairs: gathers, and multiplies in the order of the ranks.
template <class Number>
int multiply(const MpiCommunicator& in, const void* input, void* output, const Part& part, Word type,
             const char* call) {
  const std::unique_ptr<Number[]> gathered(new (std::nothrow) Number[static_cast<std::size_t>(part.all * in.size)]);
  if (gathered == nullptr)
    return fail(KOLO_OUT_OF_MEMORY, "MPI_" + std::string(call) + ": no memory for all ranks' factors");
  const kolo_tensor from = tensor_of(input, part.all, type);
  const kolo_tensor to = tensor_of(gathered.get(), part.all * in.size, type);
  const kolo_status status = kolo_allgather_into(in.group, nullptr, &from, &to, nullptr, nullptr);
  if (status != KOLO_OK) return outcome(status, call);
  auto* const products = static_cast<Number*>(output);
  for (std::int64_t i = 0; i < part.count; ++i) {
    const Number* const factors = gathered.get() + part.first + i;
    products[i] = factors[0];
    for (std::int64_t rank = 1; rank < in.size; ++rank) products[i] *= factors[rank * part.all];
  }
  return kSuccess;
}

int multiply_complex(const MpiCommunicator& in, const void* input, void* output, const Part& part, Word type,
                     const char* call) {
  return dtype_of(type) == KOLO_FLOAT32 ? multiply<std::complex<float>>(in, input, output, part, type, call)
                                        : multiply<std::complex<double>>(in, input, output, part, type, call);
}

/// Checks a reduction, and gives its options.
int prepare(const MpiCommunicator* in, std::int64_t count, Word type, Word op, kolo_allreduce_options& options,
            const char* call) {
  if (const int code = check(in, count, type, call); code != kSuccess) return code;
  const std::string where = "MPI_" + std::string(call);
  if (!is_op(op)) return fail(KOLO_UNSUPPORTED, where + ": Kolo has no such operation");
  options = KOLO_ALLREDUCE_OPTIONS_INIT;
  options.op = reduction_of(op);
  if (!is_complex(type) || options.op == KOLO_SUM || options.op == KOLO_PRODUCT) return kSuccess;
  return fail(KOLO_UNSUPPORTED, where + ": complex numbers can be added and multiplied only");
}

bool is_in_place(const void* input) noexcept { return reinterpret_cast<Word>(input) == kInPlace; }

}  // namespace

// ---------------------------------------------------------------- collectives

MPIABI_EXPORT int MPIABI_Barrier(Word communicator) {
  const MpiCommunicator* const in = communicator_of(communicator);
  const int code = check(in, 0, kByte, "Barrier");
  return code == kSuccess ? outcome(kolo_barrier(in->group, nullptr, nullptr, nullptr), "Barrier") : code;
}

MPIABI_EXPORT int MPIABI_Allreduce(const void* input, void* output, int count, Word type, Word op, Word communicator) {
  const MpiCommunicator* const in = communicator_of(communicator);
  kolo_allreduce_options options;
  if (const int code = prepare(in, count, type, op, options, "Allreduce"); code != kSuccess) return code;
  if (is_in_place(input)) input = output;
  if (is_complex(type) && options.op == KOLO_PRODUCT)
    return multiply_complex(*in, input, output, {count, 0, count}, type, "Allreduce");
  const kolo_tensor from = tensor_of(input, count, type);
  const kolo_tensor to = tensor_of(output, count, type);
  return outcome(kolo_allreduce(in->group, nullptr, &from, &to, &options, nullptr), "Allreduce");
}

MPIABI_EXPORT int MPIABI_Reduce_scatter(const void* input, void* output, const int* counts, Word type, Word op,
                                        Word communicator) {
  const MpiCommunicator* const in = communicator_of(communicator);
  kolo_allreduce_options options;
  if (const int code = prepare(in, counts[0], type, op, options, "Reduce_scatter"); code != kSuccess) return code;
  if (std::any_of(counts, counts + in->size, [counts](int count) { return count != counts[0]; }))
    return fail(KOLO_UNSUPPORTED, "MPI_Reduce_scatter: Kolo gives every rank the same number of elements here");
  if (is_in_place(input)) return fail(KOLO_UNSUPPORTED, "MPI_Reduce_scatter: MPI_IN_PLACE is not there");
  const std::int64_t mine = counts[0];
  const std::int64_t all = mine * in->size;
  if (is_complex(type) && options.op == KOLO_PRODUCT)
    return multiply_complex(*in, input, output, {all, mine * in->rank, mine}, type, "Reduce_scatter");
  const kolo_tensor from = tensor_of(input, all, type);
  const kolo_tensor to = tensor_of(output, mine, type);
  return outcome(kolo_reduce_scatter_into(in->group, nullptr, &from, &to, &options, nullptr), "Reduce_scatter");
}

MPIABI_EXPORT int MPIABI_Allgather(const void* input, int count, Word type, void* output, int each, Word type_of_each,
                                   Word communicator) {
  const MpiCommunicator* const in = communicator_of(communicator);
  if (const int code = check(in, each, type_of_each, "Allgather"); code != kSuccess) return code;
  if (is_in_place(input)) {
    const std::size_t bytes =
        kolo_dtype_size(dtype_of(type_of_each)) * static_cast<std::size_t>(parts_of(type_of_each));
    input =
        static_cast<const char*>(output) + bytes * static_cast<std::size_t>(each) * static_cast<std::size_t>(in->rank);
  } else if (count != each || type != type_of_each) {
    return fail(KOLO_UNSUPPORTED, "MPI_Allgather: what is sent and what is received must have one type and count");
  }
  const kolo_tensor from = tensor_of(input, each, type_of_each);
  const kolo_tensor to = tensor_of(output, std::int64_t{each} * in->size, type_of_each);
  return outcome(kolo_allgather_into(in->group, nullptr, &from, &to, nullptr, nullptr), "Allgather");
}

// ---------------------------------------------------------------- messages

namespace {

struct Request {
  kolo_handle* handle = nullptr;
  kolo_received received = {};
};

/// As the ABI lays it out.
struct Status {
  char own[24];
  int source;
  int tag;
  int error;
};

void write(const kolo_received& received, Status* status) noexcept {
  if (status != nullptr) *status = {{}, received.source, received.tag, kSuccess};
}

}  // namespace

MPIABI_EXPORT int MPIABI_Isend(const void* data, int count, Word type, int to, int tag, Word communicator,
                               Request** request) {
  *request = nullptr;
  const MpiCommunicator* const in = communicator_of(communicator);
  const int code = check(in, count, type, "Isend");
  if (code != kSuccess || to == kNoProcess) return code;
  auto made = std::make_unique<Request>();
  const kolo_tensor tensor = tensor_of(data, count, type);
  const kolo_status status = kolo_send(in->group, &tensor, to, tag, nullptr, &made->handle);
  if (status == KOLO_OK) *request = made.release();
  return outcome(status, "Isend");
}

MPIABI_EXPORT int MPIABI_Irecv(void* data, int count, Word type, int from, int tag, Word communicator,
                               Request** request) {
  *request = nullptr;
  const MpiCommunicator* const in = communicator_of(communicator);
  const int code = check(in, count, type, "Irecv");
  if (code != kSuccess || from == kNoProcess) return code;
  auto made = std::make_unique<Request>();
  const kolo_tensor tensor = tensor_of(data, count, type);
  const kolo_status status = kolo_recv(in->group, &tensor, from, tag, nullptr, &made->received, &made->handle);
  if (status == KOLO_OK) *request = made.release();
  return outcome(status, "Irecv");
}

MPIABI_EXPORT int MPIABI_Wait(Request** request, Status* status) {
  const std::unique_ptr<Request> done(*request);
  *request = nullptr;
  if (done == nullptr) return kSuccess;
  const int code = outcome(kolo_wait(done->handle, -1.0), "Wait");
  write(done->received, status);
  return code;
}

MPIABI_EXPORT int MPIABI_Sendrecv(const void* data, int count, Word type, int to, int tag, void* into, int capacity,
                                  Word type_into, int from, int tag_from, Word communicator, Status* status) {
  const MpiCommunicator* const in = communicator_of(communicator);
  int code = check(in, count, type, "Sendrecv");
  if (code == kSuccess) code = check(in, capacity, type_into, "Sendrecv");
  if (code != kSuccess) return code;
  if (to == kNoProcess || from == kNoProcess) return fail(KOLO_UNSUPPORTED, "MPI_Sendrecv: MPI_PROC_NULL is not there");
  const kolo_tensor sent = tensor_of(data, count, type);
  const kolo_tensor got = tensor_of(into, capacity, type_into);
  kolo_received received = {};
  code = outcome(kolo_sendrecv(in->group, &sent, to, tag, &got, from, tag_from, nullptr, &received), "Sendrecv");
  write(received, status);
  return code;
}

}  // namespace kolo::mpiabi
