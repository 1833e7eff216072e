// SPDX-License-Identifier: Apache-2.0
#include "api/submit.hpp"

#include <bit>
#include <cstdint>
#include <utility>

#include "api/access.hpp"
#include "api/checks.hpp"
#include "api/context_impl.hpp"
#include "api/nan_check.hpp"
#include "core/device_place.hpp"

namespace kolo::api {
namespace {

/// Which memory of each rank NCCL's collective of a kind reads and writes by itself. Messages between two ranks are
/// agreed between the two, by NCCL.
struct Reached {
  bool input = false;
  bool output = false;
};
Reached reached_by_nccl(core::CollectiveKind kind) noexcept {
  switch (kind) {
  case core::CollectiveKind::allreduce:
  case core::CollectiveKind::allgather:
  case core::CollectiveKind::allgather_equal:
  case core::CollectiveKind::reduce_scatter:
    return {true, true};
  case core::CollectiveKind::reduce:
    return {true, false};
  case core::CollectiveKind::broadcast:
    return {false, true};
  default:
    return {};
  }
}

}  // namespace

data::DeviceBackend& device_of(const engine::Engine& engine) {
  if (data::DeviceBackend* const device = engine.device()) return *device;
  throw Error(ErrorCode::unsupported,
              "no CUDA device can be used: this build has no CUDA part; give memory of the CPU");
}

void prepare_device(const detail::GroupParts& group, std::string_view name, Request& request) {
  if (request.device.kind == DeviceKind::cpu) return;
  const engine::Engine& engine = group.engine;
  const core::CollectiveTraits& traits = core::traits_of(request.signature.kind);
  const core::WireTraits& wire = core::traits_of(request.signature.wire);
  try {
    data::DeviceBackend& device = device_of(engine);
    if (traits.cpu_only || wire.cpu_only) {
      throw Error(ErrorCode::unsupported, std::string(traits.cpu_only ? traits.name : wire.name) +
                                              " has no path for tensors of a device; copy it to the CPU first");
    }
    device.check_usable(request.device, request.signature);
  } catch (const Error& error) {
    refuse({traits.kind, name}, "the tensor lies on " + to_string(request.device) + ", but " + error.status().message(),
           error.code());
  }
  const auto place_of = [&](const std::byte* data, std::size_t bytes) {
    return engine.device()->place_of(data, bytes, group.set.members);
  };
  for (std::size_t i = 0; i < request.buffers.size(); ++i) {
    const engine::Buffer& buffer = request.buffers[i];
    core::TensorSignature& tensor = request.signature.tensors[i];
    // A tensor that is sent as another type is copied, also from an arena.
    if (core::wire_of(tensor.dtype, request.signature.wire) != core::Wire::own) continue;
    if (traits.in_arena && buffer.input == buffer.output) {
      tensor.place = place_of(buffer.input, static_cast<std::size_t>(buffer.elements) * size_of(tensor.dtype));
      continue;
    }
    const auto region_of = [&](const std::byte* data) { return core::DevicePlace(place_of(data, 1)).region; };
    const Reached reached = reached_by_nccl(traits.kind);
    tensor.place = core::DevicePlace::of_regions(reached.input ? region_of(buffer.input) : std::uint16_t{0},
                                                 reached.output ? region_of(buffer.output) : std::uint16_t{0});
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

/// Moves the request's parts into the operation.
void fill(engine::Engine& engine, detail::HandleState& operation, Request& request) {
  operation.ready = record(engine, request.device, request.streams);
  operation.buffers = std::move(request.buffers);
  operation.timeout = request.timeout;
  operation.outputs = std::move(request.outputs);
}

/// The part of a submission that may throw.
std::shared_ptr<detail::HandleState> make_operation(engine::Engine& engine, Claim& claim, Request request) {
  engine::Entry& entry = claim.entry();
  const bool known = entry.signature && *entry.signature == request.signature;
  if (!known) name_members(entry.name, request);
  if (request.device.kind != DeviceKind::cpu && engine.device()->wants_labels())
    engine.device()->note_submission(entry.name);
  auto operation = std::make_shared<detail::HandleState>();
  fill(engine, *operation, request);
  operation->entry = &entry;
  operation->name_hash = entry.hash;
  if (!known) entry.signature = entry.table.share(std::move(request.signature));
  operation->signature = entry.signature;
  return operation;
}

std::shared_ptr<detail::HandleState> submit(engine::Engine& engine, Claim& claim,
                                            std::shared_ptr<detail::HandleState> operation, bool waits) {
  claim.submitted();
  engine.submitter().submit(operation, waits);
  return operation;
}

/// Waits for the operation of a blocking call, and throws its error.
void finish(engine::Engine& engine, detail::HandleState& operation, CallResult* result) {
  try {
    engine.driving().wait(operation, std::nullopt);
  } catch (...) {
    engine.driving().end_now(operation, "an exception ended a wait");
    throw;
  }
  if (operation.failed()) throw Error(operation.outcome());
  if (result != nullptr && operation.outputs.first.owns_result)
    *result = {std::move(operation.outputs.first.result), std::move(operation.outputs.received)};
}

/// The part of a call without a name that may throw. It comes before the call takes its number: a call that throws on
/// one rank alone does not count as made.
std::shared_ptr<detail::HandleState> make_call(engine::Engine& engine, engine::SetState& set, Request request) {
  if (!request.members.empty()) name_members({}, request);
  auto operation = std::make_shared<detail::HandleState>();
  fill(engine, *operation, request);
  operation->entry = &set.sequence.entry();
  operation->signature = set.names.share(std::move(request.signature));
  return operation;
}

/// A blocking call without a name, from its reservation to its end.
class BlockingCall {
 public:
  BlockingCall(engine::Engine& engine, engine::SetState& set)
      : engine_(engine), set_(set), reserved_(engine.submitter().begin_call(set)) {}
  ~BlockingCall() {
    if (!is_over_) engine_.submitter().end_call(set_, reserved_, nullptr);
  }
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;
  /// Whether the call has avoided the log.
  [[nodiscard]] bool take_shortcut(const data::SmallCall& call) {
    return engine_.submitter().take_shortcut(set_, reserved_, call);
  }
  void give_to_log(const std::shared_ptr<detail::HandleState>& operation) {
    is_over_ = true;
    engine_.submitter().end_call(set_, reserved_, operation);
  }

 private:
  engine::Engine& engine_;
  engine::SetState& set_;
  engine::Sequence::Reservation reserved_;
  bool is_over_ = false;
};

/// Makes a call through the log.
void run_by_log(engine::Engine& engine, BlockingCall& reserved, const std::shared_ptr<detail::HandleState>& operation,
                CallResult* result) {
  reserved.give_to_log(operation);
  finish(engine, *operation, result);
}

data::Piece piece_of(const engine::Buffer& buffer) { return {buffer.input, buffer.output, buffer.elements}; }

/// What the shortcut needs of a signature or a call, but for the tensor.
template <class Parts>
data::SmallCall small_call_of(const Parts& parts) {
  data::SmallCall call;
  call.kind = parts.kind;
  call.op = parts.op;
  call.prescale = parts.prescale;
  call.postscale = parts.postscale;
  call.root = parts.root;
  return call;
}

/// Makes a call on the CPU's memory by the shortcut, if that is possible. Returns whether it did.
bool run_by_shortcut(BlockingCall& reserved, Request& request) {
  const core::Signature& signature = request.signature;
  data::SmallCall call = small_call_of(signature);
  if (!signature.tensors.empty()) {
    call.dtype = signature.tensors.front().dtype;
    call.shape = signature.tensors.front().shape;
    call.tensor = piece_of(request.buffers.front());
  }
  call.splits = request.outputs.splits;
  call.output_elements = request.outputs.first.output_elements;
  call.make_room = [&](const std::vector<std::int64_t>& parts) {
    if (request.outputs.splits.empty())
      return request.outputs.first.of_gather(call.kind, parts, call.dtype, call.tensor.output);
    return request.outputs.first.of_alltoall(call.kind, parts, call.dtype, call.tensor.output);
  };
  return reserved.take_shortcut(call);
}

bool same_bits(double a, double b) noexcept {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// Whether a call is *plain*: of one tensor in the CPU's memory, with an output of the same shape. Most calls of a
/// training are. A plain call is compared with the last call of its name (or the last unnamed call), and becomes a
/// `Request` only if it differs.
bool is_plain(const detail::CallParts& call) noexcept {
  const auto on_cpu = [](const auto& view) { return !view || view->device().kind == DeviceKind::cpu; };
  return core::traits_of(call.kind).shapes == core::Shapes::same && !call.members && on_cpu(call.input) &&
         on_cpu(call.output);
}

/// A plain call, once it has been checked.
struct Plain {
  Root root;
  std::string_view name;
  const detail::CallParts& call;
};

Plain check_plain(const engine::SetState& set, std::string_view name, const detail::CallParts& call) {
  const core::CollectiveTraits& traits = core::traits_of(call.kind);
  const Root root = root_of(set, call);
  const Subject subject(call.kind, name);
  if (traits.result_at_root) check_output_at_root(subject, call.output, root);
  if (traits.rooted) check_root(subject, root);
  check_tensors(subject, input_of(call), call);
  if (call.timeout) check_timeout(subject, call.timeout);
  return {root, name, call};
}

/// Whether that signature is the plain call's.
bool is_same(const core::Signature& signature, const Plain& plain) {
  const detail::CallParts& call = plain.call;
  const ConstTensorView& in = input_of(call);
  return signature.priority == priority_of(plain.name, call) && signature.device == DeviceKind::cpu &&
         signature.kind == call.kind && signature.op == call.op && signature.root == call.root &&
         signature.members == 0 && signature.tensors.size() == 1 && signature.tensors.front().dtype == in.dtype() &&
         signature.tensors.front().shape == in.shape() && signature.wire == wire_of(call) &&
         same_bits(signature.prescale, call.prescale) && same_bits(signature.postscale, call.postscale);
}

/// Sets what differs from call to call: the operation may be used again.
void set_call(detail::HandleState& operation, const Plain& plain) {
  operation.buffers.resize(1);
  operation.buffers.front() = buffer_of(plain.call, plain.root);
  operation.timeout = plain.call.timeout;
}

data::SmallCall small_call(const Plain& plain) {
  const detail::CallParts& call = plain.call;
  data::SmallCall small = small_call_of(call);
  small.dtype = input_of(call).dtype();
  small.shape = input_of(call).shape();
  small.tensor = piece_of(buffer_of(call, plain.root));
  return small;
}

void check_usable(engine::Engine& engine, bool waits) {
  engine.check_usable();
  if (waits) engine.driving().check_may_wait();
}

/// Starts a call by its name. `waits`: the caller will wait for it at once.
std::shared_ptr<detail::HandleState> start_named(const detail::GroupParts& group, std::string_view name,
                                                 const Call& call, bool waits) {
  check_name(name);
  const auto [engine, set] = group;
  if (!is_plain(parts_of(call))) {
    Request request = make_request(set, name, call);
    check_usable(engine, waits);
    prepare_device(group, name, request);
    check_for_nan(engine, name, parts_of(call));
    Claim claim(set.names.claim(name));
    return submit(engine, claim, make_operation(engine, claim, std::move(request)), waits);
  }
  const Plain plain = check_plain(set, name, parts_of(call));
  check_usable(engine, waits);
  check_for_nan(engine, name, parts_of(call));
  Claim claim(set.names.claim(name));
  engine::Entry& entry = claim.entry();
  if (!entry.signature || !is_same(*entry.signature, plain)) {
    return submit(engine, claim, make_operation(engine, claim, make_request(set, name, call)), waits);
  }
  if (!engine::try_reuse(entry.last)) {
    entry.last = std::make_shared<detail::HandleState>();
    entry.last->entry = &entry;
  }
  std::shared_ptr<detail::HandleState> operation = entry.last;
  operation->name_hash = entry.hash;
  if (operation->signature != entry.signature) operation->signature = entry.signature;
  set_call(*operation, plain);
  return submit(engine, claim, std::move(operation), waits);
}

/// Starts a call without a name, as the next of the group's sequence.
std::shared_ptr<detail::HandleState> start_unnamed(const detail::GroupParts& group, const Call& call) {
  const auto [engine, set] = group;
  std::shared_ptr<detail::HandleState> operation;
  if (is_plain(parts_of(call))) {
    const Plain plain = check_plain(set, {}, parts_of(call));
    engine.check_usable();
    check_for_nan(engine, {}, parts_of(call));
    operation = set.sequence.take();
    if (!operation->signature || !is_same(*operation->signature, plain)) {
      operation->signature = set.names.share(make_request(set, {}, call).signature);
    }
    set_call(*operation, plain);
  } else {
    Request request = make_request(set, {}, call);
    engine.check_usable();
    prepare_device(group, {}, request);
    check_for_nan(engine, {}, parts_of(call));
    operation = make_call(engine, set, std::move(request));
  }
  engine.submitter().call(set, operation);
  return operation;
}

/// Whether a checked call without a name is one for the shortcut (engine/submitter.hpp, `take_shortcut`).
bool fits_shortcut(const Request& request) noexcept {
  return request.device.kind == DeviceKind::cpu && request.signature.wire == core::Wire::own &&
         request.signature.members == 0;
}

/// Runs a blocking call without a name.
void run_blocking_unnamed(const detail::GroupParts& group, const Call& call, CallResult* result) {
  const auto [engine, set] = group;
  const detail::CallParts& parts = parts_of(call);
  if (is_plain(parts) && !parts.send_as) {
    const Plain plain = check_plain(set, {}, parts);
    check_usable(engine, true);
    check_for_nan(engine, {}, parts);
    BlockingCall reserved(engine, set);
    engine.check_usable();  // the wait for the reservation may have been long
    if (reserved.take_shortcut(small_call(plain))) return;
    return run_by_log(engine, reserved, make_call(engine, set, make_request(set, {}, call)), result);
  }
  Request request = make_request(set, {}, call);
  check_usable(engine, true);
  prepare_device(group, {}, request);
  check_for_nan(engine, {}, parts);
  if (!fits_shortcut(request)) {
    const auto operation = make_call(engine, set, std::move(request));
    BlockingCall reserved(engine, set);
    return run_by_log(engine, reserved, operation, result);
  }
  BlockingCall reserved(engine, set);
  engine.check_usable();  // the wait for the reservation may have been long
  if (!run_by_shortcut(reserved, request))
    return run_by_log(engine, reserved, make_call(engine, set, std::move(request)), result);
  if (result != nullptr && request.outputs.first.owns_result)
    *result = {std::move(request.outputs.first.result), std::move(request.outputs.received)};
}

}  // namespace

base::Mutex& lock_of_own_calls(const Group& group) {
  const auto [engine, set] = parts_of(group);
  check_usable(engine, true);
  return set.own_calls;
}

Tensor run_own(const Group& group, std::string_view name, const Call& call) {
  const auto [engine, set] = parts_of(group);
  Request request = make_request(set, {}, call);
  engine.check_usable();
  Claim claim(set.names.claim(name));
  const auto operation = submit(engine, claim, make_operation(engine, claim, std::move(request)), true);
  CallResult result;
  finish(engine, *operation, &result);
  return std::move(result.output);
}

}  // namespace kolo::api

namespace kolo {

void run(const Where& where, const Call& call, CallResult* result) {
  const detail::GroupParts parts = api::parts_of(where.group());
  const std::optional<std::string_view> name = where.name();
  if (!name) return api::run_blocking_unnamed(parts, call, result);
  const std::shared_ptr<detail::HandleState> operation = api::start_named(parts, *name, call, true);
  api::finish(parts.engine, *operation, result);
}

Handle start(const Where& where, const Call& call) {
  const detail::GroupParts parts = api::parts_of(where.group());
  const std::optional<std::string_view> name = where.name();
  return Handle(name ? api::start_named(parts, *name, call, false) : api::start_unnamed(parts, call));
}

void end_step(const Group& group) {
  const auto [engine, set] = api::parts_of(group);
  engine.submitter().end_step(set.number);
}

}  // namespace kolo
