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
  alltoall,       ///< with splits
  alltoall_into,  ///< without
  barrier
};
constexpr int kKinds = 17;
/// Whether each rank has a length of its own.
constexpr bool differs_by_rank(Kind kind) {
  return kind == Kind::allgather || kind == Kind::allgather_into || kind == Kind::gather || kind == Kind::gather_into ||
         kind == Kind::scatter_into;
}

struct Operation {
  Kind kind = Kind::allreduce;
  std::string name;  ///< empty: the order of the calls is the name
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  bool scaled = false;  ///< before and after
  std::optional<DType> send_as;
  int root = 0;
  /// Elements: of each member of a group; of each rank's part of a gather or a scatter; that each rank sends to each (r
  /// * ranks + to) with splits, without splits those that all send to each; else of the only tensor.
  std::vector<std::int64_t> lengths;
  std::int64_t salt = 0;  ///< which numbers the tensors hold; another in every step
  bool prepared = false;  ///< by the world's prepared request of this name
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

/// A tensor at any alignment, with borders that nobody may write to.
class Memory {
 public:
  Memory(DType dtype, std::int64_t elements, std::size_t misalignment, const Room& room = nullptr);

  [[nodiscard]] std::byte* data() { return bytes_.get() + begin_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::byte* element(std::int64_t i) { return data() + static_cast<std::size_t>(i) * size_of(dtype_); }
  [[nodiscard]] TensorView view() { return {data(), dtype_, Shape{elements_}}; }
  /// Everything but the borders, too.
  void poison();
  /// Throws Wrong.
  void check_borders() const;
  /// The same unless nobody has written to any of it.
  void check_poison() const;

 private:
  DType dtype_;
  std::int64_t elements_;
  std::size_t begin_;
  std::size_t size_;
  std::size_t all_;  ///< with the borders
  std::shared_ptr<std::byte> bytes_;
};

/// One thread at a time.
class InFlight {
 public:
  /// `own` draws the alignment, in half of the cases some odd one. Without `room` the memory is the heap's.
  InFlight(const Group& group, Operation operation, Random& own, const Room& room = nullptr);

  /// Whether `prepare` may be called: the result goes into memory of the caller.
  [[nodiscard]] bool can_prepare() const;
  /// Of a prepared operation, once, before the first `submit`.
  void prepare();
  /// Fills the memory for this step and describes the call, for who makes it.
  [[nodiscard]] Call as_call(std::int64_t salt);
  /// Fills the memory for this step and makes the call.
  void submit(std::int64_t salt);
  [[nodiscard]] Handle& handle() {
    if (exchanged_.valid()) return exchanged_;
    return gathered_.valid() ? gathered_ : handle_;
  }
  /// Whether the handle brings the result, so that it must stay here.
  [[nodiscard]] bool brings_result() const { return exchanged_.valid() || gathered_.valid(); }
  /// After completion. Throws Wrong.
  void check();
  [[nodiscard]] const Operation& operation() const { return operation_; }

 private:
  [[nodiscard]] bool is(std::initializer_list<Kind> kinds) const;
  [[nodiscard]] bool reduces() const;
  [[nodiscard]] AllreduceOptions options() const;
  [[nodiscard]] ReduceOptions reduce_options() const;
  [[nodiscard]] std::vector<NamedView> members();
  [[nodiscard]] std::int64_t length(int i) const { return operation_.lengths[static_cast<std::size_t>(i)]; }
  /// What `from` sends to `to`, and where in the input of `from` that begins.
  [[nodiscard]] std::int64_t split(int from, int to) const;
  [[nodiscard]] std::int64_t sent_before(int from, int to) const;
  /// This rank's rows of a reduce_scatter.
  [[nodiscard]] std::int64_t first_row(int rank) const;
  [[nodiscard]] std::int64_t wanted(std::int64_t i, int rank) const;
  [[nodiscard]] TensorView input();
  [[nodiscard]] TensorView output();
  [[nodiscard]] std::vector<std::int64_t> dealt() const;
  [[nodiscard]] Call call();
  void fill();
  void start();
  void check_elements(const std::byte* got, std::int64_t count, std::int64_t first, int rank);
  void check_given(std::int64_t begin, std::int64_t end);
  void check_gathered();
  void check_exchanged();
  void check_scattered();
  void check_at_root();
  void check_dealt();

  Group group_;
  Operation operation_;
  std::deque<Memory> inputs_;   ///< of a group one a member, else one
  std::deque<Memory> outputs_;  ///< empty where the result lies in the input, or in the handle
  /// In place: the element of a gather's output with which its input begins, or of a scatter's input with which its
  /// output begins.
  std::optional<std::int64_t> place_;
  Handle handle_;
  Future<Tensor> gathered_;
  Future<AlltoallResult> exchanged_;
  Prepared prepared_;
};

}  // namespace kolo::testing
