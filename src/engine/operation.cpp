// SPDX-License-Identifier: Apache-2.0
#include "engine/operation.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "base/quote.hpp"
#include "engine/name_table.hpp"

namespace kolo::detail {

namespace {

/// With or without splits, an all-to-all is one to its caller.
std::string describe(const OutputLabel& whose, core::CollectiveKind kind) {
  if (whose.call) {
    const std::string group = whose.name.empty() ? "this grouped call" : base::quoted(whose.name);
    return "call " + std::to_string(*whose.call) + " of " + group;
  }
  const bool has_splits = kind == core::CollectiveKind::alltoall_splits || kind == core::CollectiveKind::alltoall_known;
  const std::string what(core::to_string(has_splits ? core::CollectiveKind::alltoall : kind));
  return whose.name.empty() ? "this " + what : what + " of " + base::quoted(whose.name);
}

}  // namespace

Shape with_rows(std::int64_t rows, const Shape& row) {
  std::int64_t extents[Shape::kMaxRank + 1] = {rows};
  std::copy(row.begin(), row.end(), extents + 1);
  return {extents, row.rank() + 1};
}

std::byte* Output::of_gather(core::CollectiveKind kind, const std::vector<std::int64_t>& bytes, DType dtype,
                             std::byte* given, const OutputLabel& whose) {
  if (!is_wanted) return nullptr;
  const auto what = [&] { return describe(whose, kind); };
  const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  if (owns_result) return make_result(dtype, with_rows(total / row_bytes, row), what());
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  if (total != output_elements * element) {
    throw Error(ErrorCode::invalid_argument, "the output of " + what() + " has " + std::to_string(output_elements) +
                                                 " elements, but the ranks together gave " +
                                                 std::to_string(total / element));
  }
  const std::int64_t place = std::accumulate(bytes.begin(), bytes.begin() + rank, std::int64_t{0});
  if (input_at >= 0 && input_at != place) {
    throw Error(ErrorCode::invalid_argument, "the input of " + what() + " lies at byte " + std::to_string(input_at) +
                                                 " of its output, but rank " + std::to_string(rank) +
                                                 "'s rows come to byte " + std::to_string(place) +
                                                 "; give it there, or in memory of its own");
  }
  return given;
}

std::byte* Output::make_result(DType dtype, const Shape& shape, const std::string& what) {
  try {
    result = Tensor(dtype, shape);
  } catch (const std::bad_alloc&) {
    const std::int64_t bytes = shape.elements() * static_cast<std::int64_t>(size_of(dtype));
    throw Error(ErrorCode::out_of_memory,
                "no memory for the result of " + what + ", " + std::to_string(bytes) + " bytes");
  }
  return static_cast<std::byte*>(result.data());
}

std::byte* Output::of_alltoall(core::CollectiveKind kind, const std::vector<std::int64_t>& rows, DType dtype,
                               std::byte* given, const OutputLabel& whose) {
  const Shape shape = with_rows(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), row);
  if (owns_result) return make_result(dtype, shape, describe(whose, kind));
  if (shape.elements() == output_elements) return given;
  throw Error(ErrorCode::invalid_argument,
              "the output of " + describe(whose, kind) + " has " + std::to_string(output_elements) + " elements, but " +
                  (core::traits_of(kind).rooted ? "the root gave this rank " : "the ranks together gave this one ") +
                  std::to_string(shape.elements()));
}

Span<const std::int64_t> HandleState::splits_of(std::size_t tensor) const noexcept {
  const std::size_t each = outputs.splits.size() / buffers.size();
  return {outputs.splits.data() + tensor * each, knows_received_splits() ? each / 2 : each};
}

Span<const std::int64_t> HandleState::received_splits_of(std::size_t tensor) const noexcept {
  const Span<const std::int64_t> given = splits_of(tensor);
  return knows_received_splits() ? Span<const std::int64_t>(given.data() + given.size(), given.size())
                                 : Span<const std::int64_t>();
}

bool HandleState::knows_received_splits() const noexcept {
  return signature->kind == core::CollectiveKind::alltoall_known;
}

std::byte* HandleState::allocate_output(std::size_t tensor, const std::vector<std::int64_t>& parts) {
  const DType dtype = signature->tensors[tensor].dtype;
  Output& output = tensor == 0 ? outputs.first : outputs.others[tensor - 1];
  std::byte* given = output.owns_result ? nullptr : buffers[tensor].output;
  OutputLabel whose;
  const bool is_named = entry != nullptr && entry->name.rfind("kolo.", 0) != 0;  // by the program
  if (is_named) whose.name = entry->name;
  if (!outputs.others.empty()) whose.call = tensor;
  if (outputs.splits.empty()) return output.of_gather(signature->kind, parts, dtype, given, whose);
  const Span<const std::int64_t> known = received_splits_of(tensor);
  const auto differs = std::mismatch(known.begin(), known.end(), parts.begin()).first;
  if (differs != known.end()) {
    const auto from = static_cast<std::size_t>(differs - known.begin());
    throw Error(ErrorCode::invalid_argument, "the received splits of " + describe(whose, signature->kind) + " say " +
                                                 std::to_string(*differs) + (*differs == 1 ? " row" : " rows") +
                                                 " from rank " + std::to_string(from) + ", which gave " +
                                                 std::to_string(parts[from]));
  }
  outputs.received = parts;
  return output.of_alltoall(signature->kind, parts, dtype, given, whose);
}

std::int64_t HandleState::bytes() const noexcept {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    sum += buffers[i].elements * static_cast<std::int64_t>(size_of(signature->tensors[i].dtype));
  }
  return sum;
}

bool HandleState::mark_awaited() noexcept {
  return (state_.fetch_or(kAwaited, std::memory_order_acq_rel) & (kAwaited | kDone)) == 0;
}

/// Sleeps until `ready`, until done or until the time has come.
template <class Ready>
void HandleState::sleep(std::optional<base::Time> until, Ready ready) {
  state_.fetch_or(kAttended, std::memory_order_acq_rel);
  ++sleepers_;
  bool in_time = true;
  while (in_time && !done() && !ready()) {
    if (until) {
      in_time = changed_.wait_until(mutex_, *until);
    } else {
      changed_.wait(mutex_);
    }
  }
  --sleepers_;
}

bool HandleState::sleep_until(std::optional<base::Time> until) {
  const base::MutexLock lock(mutex_);
  sleep(until, [] { return false; });
  return done();
}

void HandleState::sleep_until_given(std::optional<base::Time> until) {
  const base::MutexLock lock(mutex_);
  sleep(until, [this]() KOLO_REQUIRES(mutex_) { return enqueued_ != nullptr; });
}

data::DeviceEventPtr HandleState::given() {
  const base::MutexLock lock(mutex_);
  return done() ? nullptr : enqueued_;
}

std::vector<std::function<void(const Status&)>> HandleState::set_enqueued(data::DeviceEventPtr event) {
  const base::MutexLock lock(mutex_);
  state_.fetch_or(kAttended | kGiven, std::memory_order_acq_rel);  // attended, so that completion takes it away
  enqueued_ = std::move(event);
  if (sleepers_ > 0) changed_.notify_all();
  return std::exchange(callbacks_.enqueued, {});
}

void HandleState::forget_late() {
  const base::MutexLock lock(mutex_);
  late_.reset();
}

std::vector<int> HandleState::sleep_until_late(base::Time until) {
  const base::MutexLock lock(mutex_);
  sleep(until, [this]() KOLO_REQUIRES(mutex_) { return late_.has_value(); });
  return late_ && !done() ? *late_ : std::vector<int>();
}

void HandleState::note_late(std::vector<int> ranks) {
  const base::MutexLock lock(mutex_);
  late_ = std::move(ranks);
  if (sleepers_ > 0) changed_.notify_all();
}

bool HandleState::add_callback(std::function<void(const Status&)>& callback) {
  const base::MutexLock lock(mutex_);
  if ((state_.fetch_or(kAttended | kHostWaits, std::memory_order_acq_rel) & kDone) != 0) return false;
  callbacks_.done.push_back(std::move(callback));
  return true;
}

bool HandleState::add_callback_when_enqueued(std::function<void(const Status&)>& callback) {
  const base::MutexLock lock(mutex_);
  if ((state_.fetch_or(kAttended, std::memory_order_acq_rel) & kDone) != 0 || enqueued_ != nullptr) return false;
  callbacks_.enqueued.push_back(std::move(callback));
  return true;
}

std::vector<std::function<void(const Status&)>> HandleState::complete(const Status& status, bool& was_awaited) {
  if (status.ok() && complete_unattended(was_awaited)) return {};
  unsigned news = kDone;
  if (!status.ok()) {
    outcome_ = status;
    news |= kFailed;
  }
  const unsigned before = state_.fetch_or(news, std::memory_order_acq_rel);
  KOLO_CHECK((before & kDone) == 0) << "an operation completed twice";
  was_awaited = (before & kAwaited) != 0;
  std::vector<std::function<void(const Status&)>> callbacks;
  bool wakes = false;
  {
    const base::MutexLock lock(mutex_);
    enqueued_.reset();
    callbacks = std::exchange(callbacks_.enqueued, {});
    std::move(callbacks_.done.begin(), callbacks_.done.end(), std::back_inserter(callbacks));
    callbacks_.done.clear();
    wakes = sleepers_ > 0;
  }
  // Without the lock, for which a woken thread would have to wait. The driver keeps this object alive.
  if (wakes) changed_.notify_all();
  state_.fetch_or(kReleased, std::memory_order_release);
  return callbacks;
}

void HandleState::reset() noexcept {
  const unsigned state = state_.load(std::memory_order_acquire);
  if ((state & kAttended) != 0) {
    const base::MutexLock lock(mutex_);
    KOLO_CHECK(sleepers_ == 0) << "a prepared operation is started again while a thread waits for it";
    callbacks_ = {};
    late_.reset();
  }
  if ((state & kFailed) != 0) outcome_ = Status();
  waiting.warned = waiting.overdue = waiting.reminded = false;
  state_.store(0, std::memory_order_release);
}

}  // namespace kolo::detail
