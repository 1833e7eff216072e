// SPDX-License-Identifier: Apache-2.0
//
// A save, in two parts. `plan` is collective on the caller's thread: lists are compared, and each rank knows what it
// writes. `write` may run on another thread: rank 0 makes the folder; each rank writes its file and tells rank 0 what
// is in it; once all have, rank 0 writes the index and puts the folder in its place.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <future>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include <kolo/checkpoint.hpp>
#include <kolo/error.hpp>

#include "checkpoint/agreement.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/files.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/xxh64.hpp"

namespace kolo {
namespace checkpoint {
namespace {

/// What this rank writes.
struct Share {
  std::string path;
  CheckpointEntries entries;
};

/// Collective. Throws the same `Error` on every rank.
Share plan(const Ranks& ranks, const std::string& path, const CheckpointEntries& entries) {
  ranks.all([&] { check_entries(entries); });
  std::vector<std::string> lines = shared_by_ranks(entries);
  lines.insert(lines.begin(), "path " + path);
  ranks.compare(lines);
  Share share{path, {}};
  for (const std::size_t i : written_by(ranks.rank(), ranks.size(), entries)) share.entries.push_back(entries[i]);
  return share;
}

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
  case DType::boolean:
    return "BOOL";
  case DType::int8:
    return "I8";
  case DType::int16:
    return "I16";
  case DType::int32:
    return "I32";
  case DType::int64:
    return "I64";
  case DType::uint8:
    return "U8";
  case DType::uint16:
    return "U16";
  case DType::uint32:
    return "U32";
  case DType::uint64:
    return "U64";
  case DType::float16:
    return "F16";
  case DType::bfloat16:
    return "BF16";
  case DType::float32:
    return "F32";
  case DType::float64:
    return "F64";
  }
  return "";
}

/// The file's first bytes: 8 for the length of what follows, JSON, and spaces up to a multiple of 8.
std::string header_of(const CheckpointEntries& entries) {
  std::string json = R"({"__metadata__":{"format":"kolo","kolo_checkpoint":"1"})";
  std::int64_t offset = 0;
  for (const CheckpointEntry& entry : entries) {
    const bool is_whole = entry.view.elements() == entry.shape.elements();
    const Shape shape = is_whole ? entry.shape : Shape{entry.view.elements()};
    std::string extents;
    for (const std::int64_t extent : shape) extents += (extents.empty() ? "" : ",") + std::to_string(extent);
    json += ',' + quoted_json(entry.name) + ":{\"dtype\":\"" + std::string(safetensors_name(entry.view.dtype())) +
            "\",\"shape\":[" + extents + "],\"data_offsets\":[" + std::to_string(offset) + ',' +
            std::to_string(offset + entry.view.bytes()) + "]}";
    offset += entry.view.bytes();
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

std::vector<std::uint64_t> write_hashed(const Descriptor& file, const TensorView& view) {
  std::vector<std::uint64_t> hashes;
  const auto* bytes = static_cast<const char*>(view.data());
  for (std::int64_t at = 0; at < view.bytes(); at += kBlockBytes) {
    const auto size = static_cast<std::size_t>(std::min(kBlockBytes, view.bytes() - at));
    hashes.push_back(xxh64(bytes + at, size));
    file.write(bytes + at, size);
  }
  return hashes;
}

/// The value of a scalar of whole numbers that an index can show.
std::optional<std::int64_t> whole_number(const CheckpointEntry& entry) {
  if (entry.shape.rank() != 0 || entry.first) return std::nullopt;
  const auto value = [&](auto zero) {
    std::memcpy(&zero, entry.view.data(), sizeof zero);
    return static_cast<std::int64_t>(zero);
  };
  switch (entry.view.dtype()) {
  case DType::int32:
    return value(std::int32_t{});
  case DType::int64:
    return value(std::int64_t{});
  case DType::uint32:
    return value(std::uint32_t{});
  case DType::uint64:
    return value(std::uint64_t{}) < 0 ? std::nullopt : std::optional(value(std::uint64_t{}));
  default:
    return std::nullopt;
  }
}

/// Writes a rank's file. Returns its index, which has this file alone, or none where there is nothing to write.
Index write_part(const std::string& folder, int rank, const CheckpointEntries& entries) {
  Index index;
  if (entries.empty()) return index;
  const std::string header = header_of(entries);
  IndexedFile listed{"part-" + std::to_string(rank) + ".safetensors", 0, static_cast<std::int64_t>(header.size()),
                     xxh64(header.data(), header.size())};
  Descriptor file(folder + '/' + listed.name, O_WRONLY | O_CREAT | O_EXCL);
  file.write(header.data(), header.size());
  std::int64_t offset = listed.header_bytes;
  for (const CheckpointEntry& entry : entries) {
    Piece piece{entry.first.value_or(0), entry.view.elements(), 0, offset, write_hashed(file, entry.view)};
    index.tensors.push_back({entry.name, entry.view.dtype(), entry.shape, {std::move(piece)}});
    if (const auto number = whole_number(entry)) index.numbers.emplace_back(entry.name, *number);
    offset += entry.view.bytes();
  }
  listed.bytes = offset;
  index.files.push_back(std::move(listed));
  file.sync();
  file.close();
  sync_folder(folder);
  return index;
}

/// Rank 0, once all parts are on the disk.
void finish(NewFolder& folder, const std::vector<std::string>& parts) {
  Index whole;
  for (const std::string& part : parts) merge(whole, decode(part));
  whole.ranks = static_cast<int>(parts.size());
  check_whole(whole, ErrorCode::mismatch);
  for (const IndexedFile& file : whole.files) {
    const std::string path = folder.folder() + '/' + file.name;
    const Status seen = attempt([&] {
      if (Descriptor(path, O_RDONLY).size() != file.bytes) throw Error(ErrorCode::io, path + ": has another size");
    });
    if (!seen.ok()) {
      throw Error(ErrorCode::io, seen.message() + ", on the host of rank 0; is the folder one that all ranks share?");
    }
  }
  write_file(folder.folder() + '/' + kIndexName, encode(whole));
  folder.commit();
}

/// Collective.
void write(const Ranks& ranks, const Share& share) {
  std::optional<NewFolder> made;  // on rank 0; removed with this function, unless it has become the checkpoint
  ranks.on_root([&] { made.emplace(share.path, kIndexName); });
  const std::string folder = ranks.from_root(made ? made->folder() : std::string());
  std::string part;
  ranks.all([&] { part = encode(write_part(folder, ranks.rank(), share.entries)); });
  const std::vector<std::string> parts = ranks.at_root(part);
  ranks.on_root([&] { finish(*made, parts); });
}

constexpr const char* kSave = "save_checkpoint";

}  // namespace
}  // namespace checkpoint

void detail::save_checkpoint(const Group& group, const std::string& path, const CheckpointEntries& entries,
                             std::chrono::nanoseconds timeout) {
  const checkpoint::Ranks ranks(group, checkpoint::kSave, timeout);
  checkpoint::write(ranks, checkpoint::plan(ranks, path, entries));
}

struct CheckpointWriter::Impl {
  explicit Impl(const Group& of) : group(of) {}

  const Group group;
  std::thread thread;
  std::atomic<bool> is_writing{false};
  // The thread's while it runs.
  checkpoint::Share share;
  std::vector<Tensor> copies;  // of the share's tensors, whose views are of these
  std::exception_ptr error;
};

namespace {

Group own_group(const Group& group) {
  std::vector<int> all(static_cast<std::size_t>(size(group)));
  std::iota(all.begin(), all.end(), 0);
  return Group::of(group, all, "CheckpointWriter");
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Group& group) : impl_(std::make_unique<Impl>(own_group(group))) {}

CheckpointWriter::~CheckpointWriter() {
  if (impl_->thread.joinable()) impl_->thread.join();
}

void CheckpointWriter::wait() {
  if (impl_->thread.joinable()) impl_->thread.join();
  if (impl_->error) std::rethrow_exception(std::exchange(impl_->error, nullptr));
}

bool CheckpointWriter::is_writing() const noexcept { return impl_->is_writing; }

void CheckpointWriter::start(const std::string& path, const detail::CheckpointEntries& entries,
                             std::chrono::nanoseconds timeout) {
  const checkpoint::Ranks ranks(impl_->group, checkpoint::kSave, timeout);
  impl_->share = checkpoint::plan(ranks, path, entries);
  std::promise<bool> is_agreed;  // no thread writes unless all ranks have a copy and a thread
  const auto begin = [&] {
    impl_->copies.clear();
    for (detail::CheckpointEntry& entry : impl_->share.entries) {
      Tensor& copy = impl_->copies.emplace_back(entry.view.dtype(), entry.view.shape());
      if (entry.view.elements() > 0) {
        std::memcpy(copy.data(), entry.view.data(), static_cast<std::size_t>(entry.view.bytes()));
      }
      entry.view = copy.view();
    }
    impl_->thread = std::thread([this, ranks, may_write = is_agreed.get_future()]() mutable {
      try {
        if (may_write.get()) checkpoint::write(ranks, impl_->share);
      } catch (...) {
        impl_->error = std::current_exception();
      }
      impl_->copies.clear();
      impl_->is_writing = false;
    });
  };
  impl_->is_writing = true;
  try {
    ranks.all(begin);
  } catch (...) {
    is_agreed.set_value(false);
    if (impl_->thread.joinable()) impl_->thread.join();
    impl_->is_writing = false;
    throw;
  }
  is_agreed.set_value(true);
}

}  // namespace kolo
