// SPDX-License-Identifier: Apache-2.0
//
// A collective with all that ranks must agree on, and one rank's part in it: its memory, the call, and the comparison
// of every byte afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/collectives.hpp>

#include "tests/support/random.hpp"

namespace kolo::testing {

enum class Kind {
  allreduce,
  allreduce_into,
  grouped,
  broadcast,
  broadcast_into,
  allgather,
  allgather_into,  ///< in place on some ranks
  reduce_scatter,
  reduce_scatter_into,  ///< in place on some ranks, into another buffer on others
  reduce,
  reduce_into,  ///< ranks that are not the root give an output or none
  gather,
  gather_into,    ///< likewise; in place on some roots
  scatter_into,   ///< with splits unless all lengths are equal; in place on some roots
  alltoall,       ///< with splits unless all lengths are equal
  alltoall_into,  ///< without
  alltoall_splits_into,
  barrier
};
constexpr int kKinds = 18;
/// Whether each rank has a length of its own.
constexpr bool differs_by_rank(Kind kind) {
  return kind == Kind::allgather || kind == Kind::allgather_into || kind == Kind::gather || kind == Kind::gather_into ||
         kind == Kind::scatter_into;
}

/// Whether each pair of ranks has.
constexpr bool differs_by_pair(Kind kind) { return kind == Kind::alltoall || kind == Kind::alltoall_splits_into; }
/// Whether the result goes into memory of the caller.
constexpr bool has_output(Kind kind) {
  return kind != Kind::allgather && kind != Kind::gather && kind != Kind::reduce_scatter && kind != Kind::alltoall &&
         kind != Kind::barrier;
}

/// How the call is made.
enum class Form {
  asynchronous,
  synchronous,
  prepared,
  // With other calls of its kind, of another type and of other lengths, as one operation.
  grouped,
  grouped_async,
  prepared_group
};

struct Operation {
  Kind kind = Kind::allreduce;
  Form form = Form::asynchronous;
  std::string name;  ///< empty: the order of the calls is the name
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  bool scaled = false;  ///< before and after
  std::optional<DType> send_as;
  int root = 0;
  int absent = 0;  ///< so many of the group's last ranks have joined; the others make the call
  /// Rows: of each member of a group; of each rank's part of a gather or a scatter; that each rank sends to each (r *
  /// ranks + to) with splits, without splits those that all send to each; else of the only tensor.
  std::vector<std::int64_t> lengths;
  std::int64_t width = 1;        ///< elements of a row
  std::optional<bool> in_place;  ///< of an _into call that may be; not said: on some ranks
  std::int64_t salt = 0;         ///< which numbers the tensors hold; another in every step
};
/// For a person.
std::string describe(const Operation& operation);

/// A byte that is not what it must be; what() says which.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where tensors are to lie, if not on the heap: given the bytes, a place for them, or null. On the thread that makes
/// the operation.
using Room = std::function<std::shared_ptr<std::byte>(std::size_t)>;

/// A device on which tensors lie: the program writes them here, and copies them there and back.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// As the stream's next work.
  virtual void write(std::byte* there, const std::byte* here, std::size_t bytes) = 0;
  /// Of an operation that is over.
  virtual void read(std::byte* here, const std::byte* there, std::size_t bytes) = 0;
  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] virtual Stream stream() const = 0;
};

/// A tensor at any alignment, with borders that nobody may write to.
class Memory {
 public:
  Memory(DType dtype, std::int64_t elements, std::size_t misalignment, const Room& room = nullptr,
         Accelerator* accelerator = nullptr);

  [[nodiscard]] std::byte* data() { return bytes_.get() + begin_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::byte* element(std::int64_t i) { return data() + static_cast<std::size_t>(i) * size_of(dtype_); }
  /// Everything but the borders, too.
  void poison();
  /// Throws Wrong.
  void check_borders() const;
  /// The same unless nobody has written to any of it.
  void check_poison() const;
  /// Of an accelerator: to it, from it, and the place there of what lies here. (Else it all lies here.)
  void write();
  void read();
  [[nodiscard]] std::byte* place_of(std::byte* here) const {
    return accelerator_ ? there_.get() + (here - bytes_.get()) : here;
  }

 private:
  DType dtype_;
  std::int64_t elements_;
  std::size_t begin_;
  std::size_t size_;
  std::size_t all_;  ///< with the borders
  std::shared_ptr<std::byte> bytes_;
  Accelerator* accelerator_;
  std::shared_ptr<std::byte> there_;
};

/// One thread at a time.
class InFlight {
 public:
  /// `own` draws the alignment, in half of the cases some odd one. Without `room` the memory is the heap's; with an
  /// accelerator the tensors lie there, where they are aligned as elements.
  InFlight(const Group& group, Operation operation, Random& own, const Room& room = nullptr,
           Accelerator* accelerator = nullptr);

  /// Of a prepared operation or group, once, before the first `submit`.
  void prepare();
  /// Fills the memory for this step and describes the call, for who makes it.
  [[nodiscard]] Call as_call(std::int64_t salt);
  /// Fills the memory for this step and makes the call. A synchronous one is over then, and has no handle.
  void submit(std::int64_t salt);
  [[nodiscard]] Handle& handle() {
    if (exchanged_.valid()) return exchanged_;
    return gathered_.valid() ? gathered_ : handle_;
  }
  /// Until it is over, whatever its form.
  void wait() {
    if (handle().valid()) handle().wait();
  }
  /// Whether the handle brings the result, so that it must stay here.
  [[nodiscard]] bool brings_result() const { return exchanged_.valid() || gathered_.valid(); }
  /// After completion. Throws Wrong.
  void check();
  [[nodiscard]] const Operation& operation() const { return operation_; }

 private:
  [[nodiscard]] bool is(std::initializer_list<Kind> kinds) const;
  [[nodiscard]] bool reduces() const;
  /// How many ranks make the call.
  [[nodiscard]] int ranks() const { return size(group_) - operation_.absent; }
  template <class Options>
  [[nodiscard]] Options options() const;
  [[nodiscard]] std::vector<NamedView> members();
  /// Elements.
  [[nodiscard]] std::int64_t length(int i) const {
    return operation_.lengths[static_cast<std::size_t>(i)] * operation_.width;
  }
  /// Of the first so many.
  [[nodiscard]] std::int64_t length_before(int i) const;
  /// What `from` sends to `to`, and where in the input of `from` that begins.
  [[nodiscard]] std::int64_t split(int from, int to) const;
  [[nodiscard]] std::int64_t sent_before(int from, int to) const;
  /// The element with which this rank's rows of a reduce_scatter begin, which absent ranks have rows of, too.
  [[nodiscard]] std::int64_t first_of(int rank) const;
  [[nodiscard]] std::int64_t wanted(std::int64_t i, int rank) const;
  [[nodiscard]] Shape shape_of(std::int64_t elements) const;
  [[nodiscard]] TensorView view(const Memory& memory, std::byte* data, std::int64_t elements) const;
  [[nodiscard]] TensorView input();
  [[nodiscard]] TensorView output();
  [[nodiscard]] std::optional<TensorView> output_at_root();
  [[nodiscard]] std::optional<ConstTensorView> input_at_root();
  /// The splits of a scatter, and this rank's of an alltoall; none where all are equal.
  [[nodiscard]] std::vector<std::int64_t> dealt() const;
  [[nodiscard]] std::vector<std::int64_t> splits() const;
  [[nodiscard]] Call call();
  [[nodiscard]] std::vector<Call> calls();
  void add_memory(Random& own, const Room& room);
  void add_company(Random& own, const Room& room);
  void fill();
  void start();
  void run();
  void check_elements(const std::byte* got, std::int64_t count, std::int64_t first, int rank);
  void check_shape(const Tensor& result, std::int64_t elements) const;
  void check_given(std::int64_t begin, std::int64_t end);
  void check_inputs_apart();
  void check_gathered();
  void check_exchanged();
  void check_scattered();
  void check_at_root();
  void check_dealt();

  Group group_;
  Operation operation_;
  Accelerator* accelerator_;
  std::deque<Memory> inputs_;   ///< of a group one a member, else one
  std::deque<Memory> outputs_;  ///< empty where the result lies in the input, or in the handle
  /// In place: the element of a gather's output with which its input begins, or of a scatter's input with which its
  /// output begins.
  std::optional<std::int64_t> place_;
  std::vector<std::unique_ptr<InFlight>> company_;  ///< the other calls of a group
  Handle handle_;
  Future<Tensor> gathered_;
  Future<AlltoallResult> exchanged_;
  AlltoallResult got_;  ///< of a synchronous call; the output is that of a gather, too
  Prepared prepared_;
};

}  // namespace kolo::testing
