// SPDX-License-Identifier: Apache-2.0
#include <kolo/gradient_arena.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>

#include "api/access.hpp"
#include "api/context_impl.hpp"
#include "api/forks.hpp"
#include "api/submit.hpp"
#include "base/machine.hpp"
#include "base/mutex.hpp"
#include "base/quote.hpp"
#include "core/element_types.hpp"
#include "transport/regions.hpp"

namespace kolo {
namespace {

/// The greatest size of an arena, far from overflow.
constexpr std::size_t kMost = std::size_t{1} << 47;

/// A rank's name in messages.
std::string name_of(const Group& group, std::size_t rank) {
  return "rank " + std::to_string(api::set_of(group).members[rank]);
}

/// A part of the names of the arena's collectives, and, escaped, the beginning of its messages.
std::string subject(const std::string& name) { return "GradientArena(" + name + ")"; }

/// Exchanges bytes through collectives of this name, with the usual deadlines and errors.
std::vector<std::string> meet(const Group& group, const std::string& name, const std::string& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  const Tensor lengths = allgather({group, name + " lengths"}, ConstTensorView(&length, DType::int64, Shape{1}));
  const Tensor all = allgather({group, name}, ConstTensorView(mine.data(), DType::uint8, Shape{length}));
  std::vector<std::string> result;
  const auto* next = static_cast<const char*>(all.data());
  for (const std::int64_t one : lengths.as<std::int64_t>()) {
    result.emplace_back(next, next + one);
    next += one;
  }
  return result;
}

/// One rank's request for an arena.
struct Wish {
  transport::Regions::Serial serial = 0;  ///< rank 0's proposal
  std::uint64_t bytes = 0;
  std::uint64_t kind = 0;
  std::vector<transport::Regions::Serial> retired;
  std::vector<transport::Regions::Number> taken;
};

std::vector<Wish> gather(const Group& group, const std::string& name, const Wish& mine) {
  std::vector<std::uint64_t> numbers{mine.serial, mine.bytes, mine.kind, mine.retired.size(), mine.taken.size()};
  numbers.insert(numbers.end(), mine.retired.begin(), mine.retired.end());
  numbers.insert(numbers.end(), mine.taken.begin(), mine.taken.end());
  const Tensor gathered = allgather({group, name}, const_view(numbers));
  std::vector<Wish> all;
  const Span<const std::uint64_t> words = gathered.as<std::uint64_t>();
  for (const std::uint64_t* at = words.begin(); at != words.end();) {
    const std::uint64_t* const retired = at + 5;
    const std::uint64_t* const taken = retired + at[3];
    const std::uint64_t* const end = taken + at[4];
    Wish wish{at[0], at[1], at[2], {retired, taken}, {}};
    for (const std::uint64_t* number = taken; number != end; ++number) {
      wish.taken.push_back(static_cast<transport::Regions::Number>(*number));
    }
    all.push_back(std::move(wish));
    at = end;
  }
  if (all.size() < static_cast<std::size_t>(size(group))) {
    throw Error(ErrorCode::invalid_argument,
                base::escaped(name) + ": a rank has joined, and an arena is made by all of them; make it before");
  }
  return all;
}

void check_agreement(const Group& group, const std::string& name, const std::vector<Wish>& all) {
  const Wish& wish = all.front();
  const auto differing = std::find_if(
      all.begin(), all.end(), [&](const Wish& one) { return one.bytes != wish.bytes || one.kind != wish.kind; });
  if (differing == all.end()) return;
  const std::string first = name_of(group, 0);
  const std::string other = name_of(group, static_cast<std::size_t>(differing - all.begin()));
  if (differing->bytes != wish.bytes) {
    throw Error(ErrorCode::mismatch, base::escaped(name) + ": ranks disagree about its size: " + first + " asks for " +
                                         std::to_string(wish.bytes) + " bytes, " + other + " for " +
                                         std::to_string(differing->bytes));
  }
  const auto where = [](std::uint64_t kind) { return std::string(kind == 0 ? "the CPU" : "a CUDA device"); };
  throw Error(ErrorCode::mismatch, base::escaped(name) + ": ranks disagree about where it is: " + first +
                                       " wants memory of " + where(wish.kind) + ", " + other + " of " +
                                       where(differing->kind));
}

/// The number of an arena that is being made. It becomes free again when the arena fails.
class Reservation {
 public:
  /// All ranks must ask for the same size in the same kind of memory. They take a number that is free on all of them.
  Reservation(const Group& group, std::shared_ptr<transport::Regions> regions, const std::string& name,
              std::size_t bytes, DeviceKind kind)
      : regions_(std::move(regions)) {
    while (!try_to_reserve(group, name, bytes, kind)) {
    }
  }
  ~Reservation() { regions_->withdraw(id_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  [[nodiscard]] transport::Regions::Id id() const noexcept { return id_; }

 private:
  /// False, on all ranks, if one has taken the number meanwhile for an arena with other ranks.
  bool try_to_reserve(const Group& group, const std::string& name, std::size_t bytes, DeviceKind kind) {
    const std::vector<int>& members = api::set_of(group).members;
    Wish mine{0, bytes, static_cast<std::uint64_t>(kind), regions_->retired(), regions_->taken()};
    if (rank(group) == 0) mine.serial = regions_->new_serial(members.front());
    const std::vector<Wish> all = gather(group, name, mine);
    std::vector<std::vector<transport::Regions::Serial>> retired;
    std::vector<std::vector<transport::Regions::Number>> taken;
    for (const Wish& one : all) {
      retired.push_back(one.retired);
      taken.push_back(one.taken);
    }
    regions_->forget_common(retired, members);
    check_agreement(group, name, all);
    const transport::Regions::Id id{transport::Regions::first_free(taken), all.front().serial};
    if (id.number == 0) {
      throw Error(ErrorCode::unsupported,
                  base::escaped(name) + ": 65535 arenas exist already, which is the most that there can be");
    }
    const bool is_mine = regions_->reserve(id);
    if (is_mine) id_ = id;
    try {
      const std::vector<std::string> said = meet(group, name + " number", is_mine ? "" : "taken");
      if (std::all_of(said.begin(), said.end(), [](const std::string& one) { return one.empty(); })) return true;
    } catch (...) {
      regions_->withdraw(id_);
      throw;
    }
    regions_->withdraw(id_);
    return false;
  }

  const std::shared_ptr<transport::Regions> regions_;
  transport::Regions::Id id_;
};

/// If it failed on one rank, throws that rank's error on every rank.
void fail_together(const Group& group, const std::string& name, const std::string& step, const Status& problem) {
  std::string mine = problem.message();
  if (!problem.ok()) mine.insert(mine.begin(), static_cast<char>(problem.code()));
  const std::vector<std::string> all = meet(group, name + " " + step, mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    throw Error(static_cast<ErrorCode>(all[rank].front()),
                base::escaped(name) + ": " + name_of(group, rank) + ": " + all[rank].substr(1));
  }
}

/// An arena's part of memory, of whatever kind.
class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] virtual std::byte* data() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// A tensor occupies these bytes.
  virtual void allocated(std::size_t offset, std::size_t tensor_bytes, std::size_t room) = 0;
};

class HostMemory final : public Memory {
 public:
  HostMemory(const Group& group, const std::string& name, std::size_t bytes)
      : engine_(api::impl_of(group).shared_engine()), regions_(api::impl_of(group).regions()) {
    const Reservation reservation(group, regions_, name, bytes, DeviceKind::cpu);
    const std::vector<int>& members = api::set_of(group).members;
    region_ = api::impl_of(group).link().share(
        transport::Sharers::of(api::impl_of(group).engine().topology(), members), bytes,
        [&](const std::string& mine) { return meet(group, name + " handover", mine); },
        [&] { api::impl_of(group).engine().check_usable(); });
    id_ = reservation.id();
    regions_->add(id_, region_, members);
    // No rank uses the region before all have added it.
    barrier_async({group, name + " ready"}).wait();
  }
  ~HostMemory() override {
    const std::shared_ptr<engine::Engine> engine = engine_.lock();
    regions_->retire(id_, engine == nullptr || !engine->uses(region_->own(), region_->bytes()));
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept override { return region_->own(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return region_->bytes(); }
  void allocated(std::size_t offset, std::size_t /*tensor_bytes*/, std::size_t room) override {
    std::memset(data() + offset, 0, room);
  }

 private:
  const std::weak_ptr<engine::Engine> engine_;  // an arena may outlive its context, but must not keep it alive
  const std::shared_ptr<transport::Regions> regions_;
  transport::Regions::Id id_;
  std::shared_ptr<transport::SharedRegion> region_;
};

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(const Group& group, const std::string& name, std::size_t bytes, Device device)
      : engine_(api::impl_of(group).shared_engine()), regions_(api::impl_of(group).regions()) {
    const Reservation reservation(group, regions_, name, bytes, device.kind);
    fail_together(group, name, "device", why_unusable(group, device));
    data::DeviceBackend& backend = *api::impl_of(group).engine().device();
    region_ = backend.ask_region(reservation.id().number, bytes, api::set_of(group).members);
    Status problem;
    try {
      // An empty all-reduce wakes the thread that gives work to the device.
      allreduce_async({group, name + " memory"}, TensorView(nullptr, DType::uint8, Shape{0}, device)).wait();
      data_ = region_->memory();
    } catch (const Error& error) {
      problem = error.status();
    }
    try {
      fail_together(group, name, "ready", problem);
    } catch (...) {
      backend.retire(*region_, true);
      throw;
    }
    id_ = reservation.id();
    regions_->add(id_, nullptr, api::set_of(group).members);
  }
  ~DeviceMemory() override {
    const std::shared_ptr<engine::Engine> engine = engine_.lock();
    const bool release = engine == nullptr || !engine->uses(data_, bytes());
    if (engine != nullptr) engine->device()->retire(*region_, release);
    regions_->retire(id_, release);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept override { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return region_->bytes(); }
  void allocated(std::size_t offset, std::size_t tensor_bytes, std::size_t /*room*/) override {
    region_->note_end(offset + tensor_bytes);
  }

 private:
  static Status why_unusable(const Group& group, Device device) {
    try {
      api::device_of(api::impl_of(group).engine()).check_usable(device, core::Signature());
      return {};
    } catch (const Error& error) {
      return error.status();
    }
  }

  const std::weak_ptr<engine::Engine> engine_;
  const std::shared_ptr<transport::Regions> regions_;
  transport::Regions::Id id_;
  std::shared_ptr<data::DeviceRegion> region_;
  std::byte* data_ = nullptr;
};

std::unique_ptr<Memory> make_memory(const Group& group, const std::string& name, std::size_t bytes, Device device) {
  if (device.kind > DeviceKind::cuda) {
    throw Error(ErrorCode::invalid_argument, base::escaped(name) + ": there is no device kind number " +
                                                 std::to_string(static_cast<unsigned>(device.kind)));
  }
  if (bytes > kMost) {
    throw Error(ErrorCode::invalid_argument,
                base::escaped(name) + ": " + std::to_string(bytes) + " bytes are too many");
  }
  const std::size_t rounded = base::round_up(std::max<std::size_t>(bytes, 1), base::kPageBytes);
  if (device.kind == DeviceKind::cpu) return std::make_unique<HostMemory>(group, name, rounded);
  return std::make_unique<DeviceMemory>(group, name, rounded, device);
}

}  // namespace

class GradientArena::Impl {
 public:
  Impl(const Group& group, std::size_t bytes, Device device, std::string name)
      : name_(std::move(name)), device_(device), memory_(make_memory(group, subject(name_), bytes, device)) {}
  ~Impl() {
    if (!origin_.is_here()) api::keep_inherited(std::move(memory_));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Throws Error (unsupported) in a forked process, which does not have the memory.
  void check_origin() const { origin_.check(); }

  TensorView allocate(DType dtype, const Shape& shape, std::optional<Stream> stream) {
    if (dtype > core::kLastDType) {
      throw Error(ErrorCode::invalid_argument, base::escaped(subject(name_)) + ": there is no dtype number " +
                                                   std::to_string(static_cast<unsigned>(dtype)));
    }
    const std::size_t room = room_for(dtype, shape);
    std::size_t offset = 0;
    {
      const base::MutexLock lock(mutex_);
      if (room > capacity() - allocated_) {
        throw Error(ErrorCode::invalid_argument,
                    base::escaped(subject(name_)) + ": no room for " + std::string(to_string(dtype)) + " " +
                        to_string(shape) + ", " + std::to_string(room) + " bytes; " +
                        std::to_string(capacity() - allocated_) + " of " + std::to_string(capacity()) + " are left");
      }
      offset = allocated_;
      allocated_ += room;
    }
    memory_->allocated(offset, static_cast<std::size_t>(shape.elements()) * size_of(dtype), room);
    return {memory_->data() + offset, dtype, shape, device_, stream};
  }

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return memory_->bytes(); }
  [[nodiscard]] std::size_t allocated() const {
    const base::MutexLock lock(mutex_);
    return allocated_;
  }
  [[nodiscard]] bool contains(const void* address) const noexcept {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= memory_->data() && byte < memory_->data() + memory_->bytes();
  }

 private:
  const api::Origin origin_ = {};
  const std::string name_;
  const Device device_;
  std::unique_ptr<Memory> memory_;
  mutable base::Mutex mutex_;
  std::size_t allocated_ KOLO_GUARDED_BY(mutex_) = 0;
};

namespace {

std::size_t room_for_gradients(Span<Parameter> parameters) {
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.gradient) bytes += GradientArena::room_for(parameter.gradient->dtype(), parameter.gradient->shape());
  }
  return bytes;
}

/// The device of all gradients: the CPU, or one GPU.
Device device_of_gradients(Span<Parameter> parameters, const std::string& name) {
  const Parameter* first = nullptr;
  for (const Parameter& parameter : parameters) {
    if (!parameter.gradient) continue;
    if (first == nullptr) first = &parameter;
    if (parameter.gradient->device() == first->gradient->device()) continue;
    throw Error(ErrorCode::invalid_argument,
                base::escaped(subject(name)) + ": the gradient of " + base::quoted(first->name) + " lies on " +
                    to_string(first->gradient->device()) + ", that of " + base::quoted(parameter.name) + " on " +
                    to_string(parameter.gradient->device()) + "; an arena is in one place");
  }
  return first == nullptr ? cpu() : first->gradient->device();
}

}  // namespace

GradientArena::GradientArena(const Group& group, std::size_t bytes, Device device, std::string name)
    : impl_(std::make_unique<Impl>(group, bytes, device, std::move(name))) {}
GradientArena::GradientArena(const Group& group, std::size_t bytes, std::string name)
    : GradientArena(group, bytes, cpu(), std::move(name)) {}

// By value, like the others. NOLINTNEXTLINE(performance-unnecessary-value-param)
GradientArena::GradientArena(const Group& group, Span<Parameter> parameters, std::string name)
    : GradientArena(group, room_for_gradients(parameters), device_of_gradients(parameters, name), name) {
  for (Parameter& parameter : parameters) {
    if (!parameter.gradient) continue;
    const TensorView& old = *parameter.gradient;
    parameter.gradient = impl().allocate(old.dtype(), old.shape(), old.stream());
  }
}

GradientArena::GradientArena(std::size_t bytes, std::string name)
    : GradientArena(current_context(), bytes, std::move(name)) {}
GradientArena::GradientArena(std::size_t bytes, Device device, std::string name)
    : GradientArena(current_context(), bytes, device, std::move(name)) {}
GradientArena::GradientArena(Span<Parameter> parameters, std::string name)
    : GradientArena(current_context(), parameters, std::move(name)) {}

GradientArena::GradientArena(GradientArena&&) noexcept = default;
GradientArena& GradientArena::operator=(GradientArena&&) noexcept = default;
GradientArena::~GradientArena() = default;

GradientArena::Impl& GradientArena::impl() const {
  if (!impl_) throw Error(ErrorCode::invalid_argument, "this GradientArena was moved from");
  impl_->check_origin();
  return *impl_;
}

TensorView GradientArena::allocate(DType dtype, Shape shape) { return impl().allocate(dtype, shape, std::nullopt); }
TensorView GradientArena::allocate(DType dtype, Shape shape, Stream stream) {
  return impl().allocate(dtype, shape, stream);
}

std::size_t GradientArena::room_for(DType dtype, const Shape& shape) noexcept {
  return base::round_up(static_cast<std::size_t>(shape.elements()) * size_of(dtype), kAlignment);
}

std::size_t GradientArena::capacity() const { return impl().capacity(); }
std::size_t GradientArena::allocated() const { return impl().allocated(); }
bool GradientArena::contains(const void* address) const { return impl().contains(address); }
Device GradientArena::device() const { return impl().device(); }

}  // namespace kolo
