// SPDX-License-Identifier: Apache-2.0
#include "engine/name_table.hpp"

#include "base/check.hpp"
#include "base/quote.hpp"

namespace kolo::engine {
namespace {

[[noreturn]] void throw_in_flight(const std::string& name) {
  throw Error(ErrorCode::duplicate_name,
              "tensor " + base::quoted(name) +
                  " is already in flight: wait for its handle before submitting the name again, or " +
                  "give the second tensor another name");
}

[[noreturn]] void throw_held(const std::string& name) {
  throw Error(ErrorCode::duplicate_name,
              "the name " + base::quoted(name) + " belongs to a prepared request: start that one, or use another name");
}

}  // namespace

Entry& NameTable::find_or_make(std::string_view name) {
  if (const auto found = entries_.find(name); found != entries_.end()) return *found->second;
  auto made = std::make_unique<Entry>(std::string(name));
  Entry& entry = *made;
  entries_.emplace(entry.name, std::move(made));
  return entry;
}

Entry& NameTable::claim(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find_or_make(name);
  if (entry.held) throw_held(entry.name);
  if (entry.in_flight.exchange(true, std::memory_order_acquire)) throw_in_flight(entry.name);
  return entry;
}

Entry& NameTable::claim_unnamed() {
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = unnamed_next_++;
  unnamed_free_.wait(lock, [&] { return unnamed_serving_ == ticket; });
  if (unnamed_ == nullptr) unnamed_ = &find_or_make({});
  KOLO_CHECK(!unnamed_->in_flight.exchange(true, std::memory_order_acquire)) << "two unnamed calls at once";
  return *unnamed_;
}

Entry& NameTable::hold(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find_or_make(name);
  if (entry.held) throw_held(entry.name);
  if (entry.in_flight.load(std::memory_order_acquire)) throw_in_flight(entry.name);
  entry.held = true;
  return entry;
}

void NameTable::release(Entry& entry) {
  const std::lock_guard lock(mutex_);
  entry.held = false;
}

void NameTable::claim_held(Entry& entry) {
  if (entry.in_flight.exchange(true, std::memory_order_acquire)) throw_in_flight(entry.name);
}

void NameTable::finished(Entry& entry) noexcept {
  if (!entry.name.empty()) {
    entry.in_flight.store(false, std::memory_order_release);
    return;
  }
  const std::lock_guard lock(mutex_);
  entry.in_flight.store(false, std::memory_order_release);
  ++unnamed_serving_;
  unnamed_free_.notify_all();
}

void NameTable::forget(Entry& entry) {
  const std::lock_guard lock(mutex_);
  entry.slot.reset();
  if (entry.name.empty() || entry.held || entry.in_flight.load(std::memory_order_acquire)) return;
  const auto found = entries_.find(entry.name);
  KOLO_CHECK(found != entries_.end()) << "'" << entry.name << "' is not known";
  const std::unique_ptr<Entry> gone = std::move(found->second);  // its name is the key
  entries_.erase(found);
}

std::shared_ptr<const core::Signature> NameTable::share(core::Signature signature) {
  const std::lock_guard lock(mutex_);
  if (!shared_ || *shared_ != signature) shared_ = std::make_shared<const core::Signature>(std::move(signature));
  return shared_;
}

std::size_t NameTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace kolo::engine
