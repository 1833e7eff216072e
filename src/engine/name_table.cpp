// SPDX-License-Identifier: Apache-2.0
#include "engine/name_table.hpp"

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"

namespace kolo::engine {
namespace {

[[noreturn]] void throw_held(const std::string& name) {
  throw Error(ErrorCode::duplicate_name,
              "the name " + base::quoted(name) + " belongs to a prepared request: start that one, or use another name");
}

}  // namespace

void NameTable::throw_in_flight(const std::string& name) {
  throw Error(ErrorCode::duplicate_name,
              "tensor " + base::quoted(name) +
                  " is already in flight: wait for its handle before submitting the name again, or " +
                  "give the second tensor another name");
}

Entry& NameIndex::find_or_make(std::string_view name) {
  // Entries without a name are free.
  const bool is_expected = expected_ < entries_.size() && !name.empty() && entries_[expected_].name == name;
  if (is_expected) return entries_[expected_++];
  const auto found = numbers_.find(name);
  Entry& entry = found == numbers_.end() ? make(name) : entries_[found->second];
  expected_ = entry.number + 1;
  return entry;
}

Entry& NameIndex::make(std::string_view name) {
  if (free_.empty()) {
    // Space for all of them, so that taking one out cannot fail.
    if (free_.capacity() <= entries_.size()) free_.reserve(2 * entries_.size() + 8);
    const auto number = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back(set_, table_).number = number;
    free_.push_back(number);
  }
  Entry& entry = entries_[free_.back()];
  entry.name = name;
  try {
    numbers_.emplace(entry.name, entry.number);
  } catch (...) {  // no memory
    entry.name.clear();
    throw;
  }
  entry.hash = base::hash_string(name);
  free_.pop_back();
  return entry;
}

void NameIndex::take_out(Entry& entry) noexcept {
  KOLO_CHECK(numbers_.erase(entry.name) == 1) << "'" << entry.name << "' is not known";
  entry.name.clear();
  entry.signature.reset();
  entry.last.reset();
  free_.push_back(entry.number);
}

Entry& NameTable::claim(std::string_view name) {
  const base::MutexLock lock(mutex_);
  Entry& entry = entries_.find_or_make(name);
  if (entry.held) throw_held(entry.name);
  if (entry.in_flight.load(std::memory_order_acquire)) throw_in_flight(entry.name);
  entry.in_flight.store(true, std::memory_order_relaxed);  // the mutex keeps others from claiming it
  return entry;
}

Entry& NameTable::claim_in_turn(std::string_view name) {
  const base::MutexLock lock(mutex_);
  while (true) {
    Entry& entry = entries_.find_or_make(name);  // it may have gone meanwhile
    if (!entry.in_flight.load(std::memory_order_acquire)) {
      entry.in_flight.store(true, std::memory_order_relaxed);
      return entry;
    }
    ++waiting_for_names_;
    name_free_.wait(mutex_);
    --waiting_for_names_;
  }
}

Entry& NameTable::hold(std::string_view name) {
  const base::MutexLock lock(mutex_);
  Entry& entry = entries_.find_or_make(name);
  if (entry.held) throw_held(entry.name);
  if (entry.in_flight.load(std::memory_order_acquire)) throw_in_flight(entry.name);
  entry.held = true;
  return entry;
}

void NameTable::release(Entry& entry) {
  const base::MutexLock lock(mutex_);
  entry.held = false;
  drop_if_unused(entry);
}

void NameTable::give_back(Entry& entry) noexcept {
  const base::MutexLock lock(mutex_);
  end_flight(entry);
}

void NameTable::finished(Entry& entry) noexcept {
  const base::MutexLock lock(mutex_);
  end_flight(entry);  // its name was evicted while it ran, or stays without a number
}

void NameTable::end_flight(Entry& entry) noexcept {
  entry.in_flight.store(false, std::memory_order_release);
  drop_if_unused(entry);
  if (waiting_for_names_ > 0) name_free_.notify_all();
}

/// Whoever lets go of an entry calls this: the last one takes it out.
void NameTable::drop_if_unused(Entry& entry) noexcept {
  if (entry.name.empty() || entry.held || entry.known || entry.in_flight.load(std::memory_order_acquire)) return;
  entries_.take_out(entry);
}

void NameTable::set_name_id(Entry& entry, std::uint32_t name_id) {
  entry.name_id = name_id;
  const base::MutexLock lock(mutex_);
  entry.known = true;
}

void NameTable::forget(Entry& entry) {
  entry.name_id.reset();
  const base::MutexLock lock(mutex_);
  entry.known = false;
  drop_if_unused(entry);
}

std::shared_ptr<const core::Signature> NameTable::share(core::Signature signature) {
  const base::MutexLock lock(mutex_);
  if (!shared_ || *shared_ != signature) shared_ = std::make_shared<const core::Signature>(std::move(signature));
  return shared_;
}

std::size_t NameTable::size() const {
  const base::MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace kolo::engine
