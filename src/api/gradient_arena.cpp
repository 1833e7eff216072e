// SPDX-License-Identifier: Apache-2.0
#include <kolo/gradient_arena.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>

#include "api/context_impl.hpp"
#include "core/regions.hpp"

namespace kolo {
namespace {

constexpr std::size_t kPage = 4096;
/// What of memory a tensor may not begin beyond: sizes stay far from overflow.
constexpr std::size_t kMost = std::size_t{1} << 47;

std::size_t round_up(std::size_t value, std::size_t to) noexcept { return (value + to - 1) / to * to; }

std::string subject(const std::string& name) { return "GradientArena(" + name + ")"; }

/// Everyone's bytes, through collectives of this name: with the deadlines and errors that all have.
std::vector<std::string> meet(Context& context, const std::string& name, const std::string& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  const Tensor lengths = allgather(context, name + " lengths", ConstTensorView(&length, DType::int64, Shape{1}));
  const Tensor all = allgather(context, name, ConstTensorView(mine.data(), DType::uint8, Shape{length}));
  std::vector<std::string> result;
  const auto* next = static_cast<const char*>(all.data());
  for (const std::int64_t one : lengths.as<std::int64_t>()) {
    result.emplace_back(next, next + one);
    next += one;
  }
  return result;
}

/// What rank 0 proposes for the number, and that all ask for the same size.
core::Regions::Number agree(Context& context, core::Regions& regions, const std::string& name, std::size_t bytes) {
  const std::uint64_t mine[2] = {context.rank() == 0 ? regions.propose() : 0U, bytes};
  const Tensor gathered = allgather(context, name, const_view(mine, Shape{1, 2}));
  const Span<const std::uint64_t> all = gathered.as<std::uint64_t>();
  for (std::size_t i = 3; i < all.size(); i += 2) {
    if (all[i] == all[1]) continue;
    throw Error(ErrorCode::mismatch, name + ": ranks disagree about its size: rank 0 asks for " +
                                         std::to_string(all[1]) + " bytes, rank " + std::to_string(i / 2) + " for " +
                                         std::to_string(all[i]));
  }
  return static_cast<core::Regions::Number>(all[0]);
}

}  // namespace

class GradientArena::Impl {
 public:
  Impl(Context& context, std::size_t bytes, std::string name)
      : name_(std::move(name)), engine_(context.impl().shared_engine()), regions_(context.impl().regions()) {
    if (bytes > kMost) {
      throw Error(ErrorCode::invalid_argument, subject(name_) + ": " + std::to_string(bytes) + " bytes are too many");
    }
    const std::size_t rounded = round_up(std::max<std::size_t>(bytes, 1), kPage);
    number_ = agree(context, *regions_, subject(name_), rounded);
    region_ = context.impl().link().share(
        rounded, [&](const std::string& mine) { return meet(context, subject(name_) + " handover", mine); });
    regions_->add(number_, region_);
    // Nobody uses it before all know it.
    barrier_async(context, subject(name_) + " ready").wait();
  }

  ~Impl() {
    const std::shared_ptr<engine::Engine> engine = engine_.lock();
    regions_->retire(number_, engine == nullptr || !engine->uses(region_->own(), region_->bytes()));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  TensorView allocate(DType dtype, const Shape& shape) {
    const std::size_t room = room_for(dtype, shape);
    std::byte* data = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (room > capacity() - allocated_) {
        throw Error(ErrorCode::invalid_argument, subject(name_) + ": no room for " + std::string(to_string(dtype)) +
                                                     " " + to_string(shape) + ", " + std::to_string(room) + " bytes; " +
                                                     std::to_string(capacity() - allocated_) + " of " +
                                                     std::to_string(capacity()) + " are left");
      }
      data = region_->own() + allocated_;
      allocated_ += room;
    }
    std::memset(data, 0, room);
    return {data, dtype, shape};
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return region_->bytes(); }
  [[nodiscard]] std::size_t allocated() const {
    const std::lock_guard lock(mutex_);
    return allocated_;
  }
  [[nodiscard]] bool contains(const void* address) const noexcept {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= region_->own() && byte < region_->own() + region_->bytes();
  }

 private:
  const std::string name_;
  const std::weak_ptr<engine::Engine> engine_;  // an arena may outlive its context, but must not keep it alive
  const std::shared_ptr<core::Regions> regions_;
  core::Regions::Number number_ = 0;
  std::shared_ptr<core::SharedRegion> region_;
  mutable std::mutex mutex_;
  std::size_t allocated_ = 0;  // guarded by mutex_
};

namespace {

std::size_t room_for_gradients(Span<Parameter> parameters) {
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.gradient) bytes += GradientArena::room_for(parameter.gradient->dtype(), parameter.gradient->shape());
  }
  return bytes;
}

}  // namespace

GradientArena::GradientArena(Context& context, std::size_t bytes, std::string name)
    : impl_(std::make_unique<Impl>(context, bytes, std::move(name))) {}

GradientArena::GradientArena(Context& context, Span<Parameter> parameters, std::string name)
    : GradientArena(context, room_for_gradients(parameters), std::move(name)) {
  for (Parameter& parameter : parameters) {
    if (parameter.gradient) parameter.gradient = allocate(parameter.gradient->dtype(), parameter.gradient->shape());
  }
}

GradientArena::GradientArena(std::size_t bytes, std::string name)
    : GradientArena(current_context(), bytes, std::move(name)) {}
GradientArena::GradientArena(Span<Parameter> parameters, std::string name)
    : GradientArena(current_context(), parameters, std::move(name)) {}

GradientArena::GradientArena(GradientArena&&) noexcept = default;
GradientArena& GradientArena::operator=(GradientArena&&) noexcept = default;
GradientArena::~GradientArena() = default;

GradientArena::Impl& GradientArena::impl() const {
  if (!impl_) throw Error(ErrorCode::invalid_argument, "this GradientArena was moved from");
  return *impl_;
}

TensorView GradientArena::allocate(DType dtype, Shape shape) { return impl().allocate(dtype, shape); }

std::size_t GradientArena::room_for(DType dtype, const Shape& shape) noexcept {
  return round_up(static_cast<std::size_t>(shape.elements()) * size_of(dtype), kAlignment);
}

std::size_t GradientArena::capacity() const { return impl().capacity(); }
std::size_t GradientArena::allocated() const { return impl().allocated(); }
bool GradientArena::contains(const void* address) const { return impl().contains(address); }

}  // namespace kolo
