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

std::size_t NameIndex::search(std::string_view name, std::uint64_t hash) const noexcept {
  std::size_t at = home(hash);
  while (places_[at].entry && (places_[at].hash != hash || places_[at].entry->name != name)) at = next(at);
  return at;
}

Entry& NameIndex::find_or_make(std::string_view name) {
  const std::uint64_t hash = base::hash_text_quickly(name);
  std::size_t at = search(name, hash);
  if (places_[at].entry) return *places_[at].entry;
  auto made = std::make_unique<Entry>(std::string(name));
  if (2 * (size_ + 1) > places_.size()) {
    grow();
    at = search(name, hash);
  }
  places_[at] = {hash, std::move(made)};
  ++size_;
  return *places_[at].entry;
}

void NameIndex::grow() {
  std::vector<Place> before(2 * places_.size());
  before.swap(places_);
  --shift_;
  for (Place& place : before) {
    if (place.entry) places_[search(place.entry->name, place.hash)] = std::move(place);
  }
}

std::unique_ptr<Entry> NameIndex::take_out(const Entry& entry) {
  std::size_t hole = search(entry.name, base::hash_text_quickly(entry.name));
  KOLO_CHECK(places_[hole].entry.get() == &entry) << "'" << entry.name << "' is not known";
  std::unique_ptr<Entry> gone = std::move(places_[hole].entry);
  --size_;
  for (std::size_t at = next(hole); places_[at].entry; at = next(at)) {
    // An entry may fill the hole unless its search begins behind it.
    const std::size_t mask = places_.size() - 1;
    if (((at - home(places_[at].hash)) & mask) < ((at - hole) & mask)) continue;
    places_[hole] = std::move(places_[at]);
    hole = at;
  }
  return gone;
}

Entry& NameTable::claim(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.find_or_make(name);
  if (entry.held) throw_held(entry.name);
  if (entry.in_flight.load(std::memory_order_acquire)) throw_in_flight(entry.name);
  entry.in_flight.store(true, std::memory_order_relaxed);  // the mutex keeps others from claiming it
  return entry;
}

Entry& NameTable::claim_unnamed() {
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = unnamed_next_++;
  unnamed_free_.wait(lock, [&] { return unnamed_serving_ == ticket; });
  if (unnamed_ == nullptr) unnamed_ = &entries_.find_or_make({});
  KOLO_CHECK(!unnamed_->in_flight.exchange(true, std::memory_order_acquire)) << "two unnamed calls at once";
  return *unnamed_;
}

Entry& NameTable::hold(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.find_or_make(name);
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

void NameTable::set_slot(Entry& entry, std::uint32_t slot) {
  if (by_slot_.size() <= slot) by_slot_.resize(std::size_t{slot} + 1);
  by_slot_[slot] = &entry;
  entry.slot = slot;
}

void NameTable::forget(Entry& entry) {
  by_slot_[*entry.slot] = nullptr;
  entry.slot.reset();
  const std::lock_guard lock(mutex_);
  if (entry.name.empty() || entry.held || entry.in_flight.load(std::memory_order_acquire)) return;
  const std::unique_ptr<Entry> gone = entries_.take_out(entry);
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
