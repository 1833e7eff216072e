// SPDX-License-Identifier: Apache-2.0
#include "api/submit.hpp"

#include <bit>
#include <cstdint>
#include <utility>

#include "api/checks.hpp"
#include "api/context_impl.hpp"

namespace kolo::api {

void settle_device(const Group& group, std::string_view name, Request& request) {
  if (request.device.kind == DeviceKind::cpu) return;
  const engine::Engine& engine = group.impl().engine();
  const std::string where = "the tensor lies on " + to_string(request.device) + ", but ";
  if (engine.device() == nullptr) {
    refuse(request.signature.kind, name,
           where + "no CUDA device can be used: this build has no CUDA part; give memory of the CPU",
           ErrorCode::unsupported);
  }
  try {
    engine.device()->check_usable(request.device, request.signature);
  } catch (const Error& error) {
    refuse(request.signature.kind, name, where + error.status().message(), error.code());
  }
  if (!core::traits_of(request.signature.kind).in_arena) return;
  for (std::size_t i = 0; i < request.buffers.size(); ++i) {
    const engine::Buffer& buffer = request.buffers[i];
    core::TensorSignature& tensor = request.signature.tensors[i];
    // What is sent as another type is copied, wherever it lies.
    if (buffer.input != buffer.output || core::wire_of(tensor.dtype, request.signature.wire) != core::Wire::own) {
      continue;
    }
    tensor.place = engine.device()->place_of(
        buffer.input, static_cast<std::size_t>(buffer.elements) * size_of(tensor.dtype), group.set().members);
  }
}

std::vector<data::DeviceEventPtr> record(engine::Engine& engine, Device device, const std::vector<Stream>& streams) {
  std::vector<data::DeviceEventPtr> events;
  events.reserve(streams.size());
  for (const Stream& stream : streams) events.push_back(engine.device()->record(device, stream));
  return events;
}

namespace {

/// Gives a claimed name back unless it has been submitted.
class Claim {
 public:
  explicit Claim(engine::Entry& entry) noexcept : entry_(&entry) {}
  ~Claim() {
    if (entry_ != nullptr) entry_->table.give_back(*entry_);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  [[nodiscard]] engine::Entry& entry() const noexcept { return *entry_; }
  void submitted() noexcept { entry_ = nullptr; }

 private:
  engine::Entry* entry_;
};

/// All of a submission that may throw.
std::shared_ptr<detail::HandleState> make_operation(engine::Engine& engine, Claim& claim, Request request) {
  engine::Entry& entry = claim.entry();
  const bool known = entry.signature && *entry.signature == request.signature;
  if (!known) name_members(entry.name, request);
  auto operation = std::make_shared<detail::HandleState>();
  operation->ready = record(engine, request.device, request.streams);
  operation->entry = &entry;
  if (!known) entry.signature = entry.table.share(std::move(request.signature));
  operation->signature = entry.signature;
  operation->buffers = std::move(request.buffers);
  operation->timeout = request.timeout;
  operation->room = std::move(request.room);
  operation->more_rooms = std::move(request.more_rooms);
  operation->splits = std::move(request.splits);
  operation->received_splits = std::move(request.received_splits);
  return operation;
}

std::shared_ptr<detail::HandleState> start(engine::Engine& engine, Claim& claim, Request request) {
  std::shared_ptr<detail::HandleState> operation = make_operation(engine, claim, std::move(request));
  claim.submitted();
  engine.submit(operation, false);
  return operation;
}

/// Waits for an operation whose memory is the caller's.
void wait_for(engine::Engine& engine, detail::HandleState& operation) {
  try {
    engine.wait(operation, std::nullopt);
  } catch (...) {
    engine.end_now(operation, "an exception ended a wait");
    throw;
  }
  if (operation.failed()) throw Error(operation.outcome());
}

Result submit_and_wait(engine::Engine& engine, Claim& claim, const std::shared_ptr<detail::HandleState>& operation) {
  claim.submitted();
  engine.submit(operation, true);
  wait_for(engine, *operation);
  return {std::move(operation->room.result), std::move(operation->received_splits)};
}

/// All of a call without a name that may throw. It comes before the call takes its number: a call that throws on one
/// rank alone has not been made.
std::shared_ptr<detail::HandleState> make_call(engine::Engine& engine, engine::SetState& set, Request request) {
  if (!request.members.empty()) name_members({}, request);
  auto operation = std::make_shared<detail::HandleState>();
  operation->entry = &set.sequence.entry();
  operation->signature = set.names.share(std::move(request.signature));
  operation->ready = record(engine, request.device, request.streams);
  operation->buffers = std::move(request.buffers);
  operation->timeout = request.timeout;
  operation->room = std::move(request.room);
  operation->more_rooms = std::move(request.more_rooms);
  operation->splits = std::move(request.splits);
  operation->received_splits = std::move(request.received_splits);
  return operation;
}

/// The turn of a blocking call without a name.
class Turn {
 public:
  Turn(engine::Engine& engine, engine::SetState& set) : engine_(engine), set_(set), turn_(engine.begin_call(set)) {}
  ~Turn() {
    if (!is_over_) engine_.end_call(set_, turn_, nullptr);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  /// Whether the call has avoided the log.
  [[nodiscard]] bool express(const engine::ExpressCall& call) { return engine_.express(set_, turn_, call); }
  void give_to_log(const std::shared_ptr<detail::HandleState>& operation) {
    is_over_ = true;
    engine_.end_call(set_, turn_, operation);
  }

 private:
  engine::Engine& engine_;
  engine::SetState& set_;
  engine::Sequence::Turn turn_;
  bool is_over_ = false;
};

/// A call that does not avoid the log.
Result give_to_log(engine::Engine& engine, Turn& turn, const std::shared_ptr<detail::HandleState>& operation) {
  turn.give_to_log(operation);
  wait_for(engine, *operation);
  return {std::move(operation->room.result), std::move(operation->received_splits)};
}

/// A call on the CPU's memory avoids the log if that is possible; whether it did.
bool run_by_express(Turn& turn, Request& request) {
  const core::Signature& signature = request.signature;
  engine::ExpressCall call;
  call.kind = signature.kind;
  call.op = signature.op;
  call.prescale = signature.prescale;
  call.postscale = signature.postscale;
  call.root = signature.root;
  if (!signature.tensors.empty()) {
    call.dtype = signature.tensors.front().dtype;
    call.shape = signature.tensors.front().shape;
    call.buffer = request.buffers.front();
  }
  call.splits = request.splits;
  call.output_elements = request.room.output_elements;
  call.make_room = [&](const std::vector<std::int64_t>& parts) {
    if (request.splits.empty()) return request.room.of_gather(call.kind, parts, call.dtype, call.buffer.output);
    return request.room.of_alltoall(call.kind, parts, call.dtype, call.buffer.output);
  };
  return turn.express(call);
}

bool same_bits(double a, double b) noexcept {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// Whether that signature is the one that `allreduce_request` would make for a tensor in the CPU's memory.
template <class View>
bool is_same_allreduce(const core::Signature& signature, const View& in, const AllreduceOptions& options) {
  return signature.priority == options.priority && signature.device == DeviceKind::cpu &&
         signature.kind == core::CollectiveKind::allreduce && signature.op == options.op && signature.members == 0 &&
         signature.tensors.size() == 1 && signature.tensors.front().dtype == in.dtype() &&
         signature.tensors.front().shape == in.shape() && signature.wire == wire_of(options) &&
         same_bits(signature.prescale, options.prescale) && same_bits(signature.postscale, options.postscale);
}

/// That of an unnamed one.
core::Signature allreduce_signature(const ConstTensorView& in, const AllreduceOptions& options) {
  core::Signature signature = reduction_signature(core::CollectiveKind::allreduce, options);
  signature.tensors.push_back({in.dtype(), in.shape()});
  return signature;
}

/// What differs between an operation's calls: it may have had one before.
template <class View>
void set_call(detail::HandleState& operation, const View& in, const TensorView& out, const AllreduceOptions& options) {
  operation.buffers.resize(1);
  operation.buffers.front() = buffer_of(in, out.data());
  operation.timeout = options.timeout;
}

/// `View`: of the input, as the caller gave it. Views are long, and many small tensors are submitted one by one.
template <class View>
std::shared_ptr<detail::HandleState> submit_allreduce_of(const Group& group, std::string_view name, const View& in,
                                                         const TensorView& out, bool in_place,
                                                         const AllreduceOptions& options) {
  if (in.device().kind != DeviceKind::cpu || out.device().kind != DeviceKind::cpu) {
    return submit(group, name, allreduce_request(name, in, out, in_place, options));
  }
  check_tensors(core::CollectiveKind::allreduce, name, in, out, in_place, options);
  const auto [engine, set] = group.parts();
  check_name(name);
  engine.check_usable();
  Claim claim(set.names.claim(name));
  engine::Entry& entry = claim.entry();
  if (!entry.signature || !is_same_allreduce(*entry.signature, in, options)) {
    return start(engine, claim, allreduce_request(name, in, out, in_place, options));
  }
  if (!engine::try_reuse(entry.last)) {
    entry.last = std::make_shared<detail::HandleState>();
    entry.last->entry = &entry;
  }
  std::shared_ptr<detail::HandleState> operation = entry.last;
  if (operation->signature != entry.signature) operation->signature = entry.signature;
  set_call(*operation, in, out, options);
  claim.submitted();
  engine.submit(operation, false);
  return operation;
}

}  // namespace

std::shared_ptr<detail::HandleState> submit_allreduce(const Group& group, std::string_view name,
                                                      const TensorView& inout, const AllreduceOptions& options) {
  return submit_allreduce_of(group, name, inout, inout, true, options);
}

std::shared_ptr<detail::HandleState> submit_allreduce_into(const Group& group, std::string_view name,
                                                           const ConstTensorView& in, const TensorView& out,
                                                           const AllreduceOptions& options) {
  return submit_allreduce_of(group, name, in, out, false, options);
}

std::shared_ptr<detail::HandleState> call(const Group& group, Request request) {
  const auto [engine, set] = group.parts();
  engine.check_usable();
  settle_device(group, {}, request);
  std::shared_ptr<detail::HandleState> operation = make_call(engine, set, std::move(request));
  engine.call(set, operation);
  return operation;
}

namespace {

/// `View`: as above.
template <class View>
std::shared_ptr<detail::HandleState> call_allreduce_of(const Group& group, const View& in, const TensorView& out,
                                                       bool in_place, const AllreduceOptions& options) {
  if (in.device().kind != DeviceKind::cpu || out.device().kind != DeviceKind::cpu) {
    return call(group, allreduce_request({}, in, out, in_place, options));
  }
  check_tensors(core::CollectiveKind::allreduce, {}, in, out, in_place, options);
  const auto [engine, set] = group.parts();
  engine.check_usable();
  std::shared_ptr<detail::HandleState> operation = set.sequence.take();
  if (!operation->signature || !is_same_allreduce(*operation->signature, in, options)) {
    operation->signature = set.names.share(allreduce_signature(in, options));
  }
  set_call(*operation, in, out, options);
  engine.call(set, operation);
  return operation;
}

}  // namespace

std::shared_ptr<detail::HandleState> call_allreduce(const Group& group, const TensorView& inout,
                                                    const AllreduceOptions& options) {
  return call_allreduce_of(group, inout, inout, true, options);
}

std::shared_ptr<detail::HandleState> call_allreduce_into(const Group& group, const ConstTensorView& in,
                                                         const TensorView& out, const AllreduceOptions& options) {
  return call_allreduce_of(group, in, out, false, options);
}

std::shared_ptr<detail::HandleState> submit(const Group& group, std::string_view name, Request request) {
  const auto [engine, set] = group.parts();
  check_name(name);
  engine.check_usable();
  settle_device(group, name, request);
  Claim claim(set.names.claim(name));
  return start(engine, claim, std::move(request));
}

Result run(const Group& group, std::string_view name, Request request) {
  const auto [engine, set] = group.parts();
  engine.check_usable();
  engine.check_may_wait();
  if (!name.empty()) check_name(name);
  settle_device(group, name, request);
  if (!name.empty()) {
    Claim claim(set.names.claim(name));
    return submit_and_wait(engine, claim, make_operation(engine, claim, std::move(request)));
  }
  if (request.device.kind != DeviceKind::cpu || request.signature.wire != core::Wire::own) {
    const auto operation = make_call(engine, set, std::move(request));
    Turn turn(engine, set);
    return give_to_log(engine, turn, operation);
  }
  Turn turn(engine, set);
  engine.check_usable();  // the wait for the turn may have been long
  if (run_by_express(turn, request)) return {std::move(request.room.result), std::move(request.received_splits)};
  return give_to_log(engine, turn, make_call(engine, set, std::move(request)));
}

base::Mutex& lock_of_own_calls(const Group& group) {
  const auto [engine, set] = group.parts();
  engine.check_usable();
  engine.check_may_wait();
  return set.own_calls;
}

Result run_own(const Group& group, std::string_view name, Request request) {
  const auto [engine, set] = group.parts();
  engine.check_usable();
  Claim claim(set.names.claim(name));
  return submit_and_wait(engine, claim, make_operation(engine, claim, std::move(request)));
}

void run_unnamed_allreduce(const Group& group, const ConstTensorView& in, const TensorView& out, bool in_place,
                           const AllreduceOptions& options) {
  check_tensors(core::CollectiveKind::allreduce, {}, in, out, in_place, options);
  if (in.device().kind != DeviceKind::cpu || out.device().kind != DeviceKind::cpu || options.send_as) {
    run(group, {}, allreduce_request({}, in, out, in_place, options));
    return;
  }
  const auto [engine, set] = group.parts();
  engine.check_usable();
  engine.check_may_wait();
  Turn turn(engine, set);
  engine.check_usable();
  engine::ExpressCall call;
  call.kind = core::CollectiveKind::allreduce;
  call.dtype = in.dtype();
  call.shape = in.shape();
  call.op = options.op;
  call.prescale = options.prescale;
  call.postscale = options.postscale;
  call.buffer = buffer_of(in, out.data());
  if (turn.express(call)) return;
  give_to_log(engine, turn, make_call(engine, set, allreduce_request({}, in, out, in_place, options)));
}

}  // namespace kolo::api
