// SPDX-License-Identifier: Apache-2.0
//
// A save, in two parts. `plan` is collective on the caller's thread: lists are compared, and each rank knows what it
// writes. `write` may run on another thread: rank 0 makes the folder; each rank writes its file and tells rank 0 what
// is in it; once all have, rank 0 writes the index and puts the folder in its place.
#include <algorithm>
#include <array>
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

#include "base/files.hpp"
#include "base/hash.hpp"
#include "checkpoint/disk.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/ranks.hpp"

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
  const std::string hashes = ranks.from_root(ranks.rank() == 0 ? hashes_of(entries) : std::string());
  ranks.all([&] { check_alike(entries, hashes); });
  Share share{path, {}};
  for (const std::size_t i : written_by(ranks.rank(), ranks.size(), entries)) share.entries.push_back(entries[i]);
  return share;
}

/// The names of element types in the safetensors format.
constexpr std::array<std::string_view, kDTypeCount> kSafetensorsNames{"BOOL", "I8",  "I16", "I32",  "I64", "U8", "U16",
                                                                      "U32",  "U64", "F16", "BF16", "F32", "F64"};
static_assert(!kSafetensorsNames.back().empty(), "one name a type");

/// The file's first bytes: 8 for the length of what follows, JSON, and spaces up to a multiple of 8.
std::string header_of(const CheckpointEntries& entries) {
  std::string json = R"({"__metadata__":{"format":"kolo","kolo_checkpoint":"2"})";
  std::int64_t offset = 0;
  for (const CheckpointEntry& entry : entries) {
    const bool is_whole = entry.view.elements() == entry.shape.elements();
    const Shape shape = is_whole ? entry.shape : Shape{entry.view.elements()};
    std::string extents;
    for (const std::int64_t extent : shape) extents += (extents.empty() ? "" : ",") + std::to_string(extent);
    json += ',' + quoted_json(entry.name) + ":{\"dtype\":\"" +
            std::string(detail::name_of(kSafetensorsNames, entry.view.dtype())) + "\",\"shape\":[" + extents +
            "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(offset + entry.view.bytes()) + "]}";
    offset += entry.view.bytes();
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

/// The value of a scalar of whole numbers that an index can show.
std::optional<std::int64_t> whole_number(const CheckpointEntry& entry) {
  if (entry.shape.rank() != 0 || entry.held != Held::alike) return std::nullopt;
  std::int64_t value = 0;
  std::memcpy(&value, entry.view.data(), size_of(entry.view.dtype()));
  switch (entry.view.dtype()) {
  case DType::int32:
    return static_cast<std::int32_t>(value);
  case DType::int64:
  case DType::uint32:
    return value;
  case DType::uint64:
    return value < 0 ? std::nullopt : std::optional(value);
  default:
    return std::nullopt;
  }
}

/// Writes a rank's file, step by step.
class PartWriter {
 public:
  PartWriter(std::string folder, int rank, const CheckpointEntries& entries)
      : folder_(std::move(folder)), rank_(rank), entries_(&entries) {}

  /// Writes some, and flushes it to the disk. Whether there is more.
  bool step() {
    if (entries_->empty()) return false;
    if (index_.files.empty()) begin();
    for (std::int64_t written = 0; written < kStepBytes && next_ < entries_->size();) written += write_block();
    file_.sync();
    if (next_ < entries_->size()) return true;
    index_.files[0].bytes = offset_;
    file_.close();
    base::sync_folder(folder_);
    return false;
  }
  /// Of this file alone, or of none where there is nothing to write.
  [[nodiscard]] const Index& index() const { return index_; }

 private:
  static constexpr std::int64_t kStepBytes = 64 * kBlockBytes;

  void begin() {
    const std::string header = header_of(*entries_);
    offset_ = static_cast<std::int64_t>(header.size());
    index_.files.push_back({part_name(rank_), 0, offset_, base::hash_memory(header.data(), header.size())});
    file_ = File::create(folder_ + '/' + index_.files[0].name);
    file_.write(header.data(), header.size());
  }

  /// The next block of the present tensor.
  std::int64_t write_block() {
    const CheckpointEntry& entry = (*entries_)[next_];
    if (at_ == 0) {
      index_.tensors.push_back(
          {entry.name, entry.view.dtype(), entry.shape, {Piece{entry.first, entry.view.elements(), 0, offset_, {}}}});
      if (const auto number = whole_number(entry)) index_.numbers.emplace_back(entry.name, *number);
    }
    const std::int64_t bytes = std::min(kBlockBytes, entry.view.bytes() - at_);
    if (bytes > 0) {
      const auto* const block = static_cast<const char*>(entry.view.data()) + at_;
      index_.tensors.back().pieces[0].hashes.push_back(base::hash_memory(block, static_cast<std::size_t>(bytes)));
      file_.write(block, static_cast<std::size_t>(bytes));
    }
    at_ += bytes;
    offset_ += bytes;
    if (at_ == entry.view.bytes()) {
      at_ = 0;
      ++next_;
    }
    return bytes;
  }

  const std::string folder_;
  const int rank_;
  const CheckpointEntries* entries_;
  File file_;
  Index index_;
  std::size_t next_ = 0;              // entry
  std::int64_t at_ = 0, offset_ = 0;  // in that entry, and in the file, in bytes
};

/// Rank 0, once all parts are on the disk.
void finish(NewFolder& folder, const std::vector<std::string>& parts) {
  Index whole;
  for (const std::string& part : parts) merge(whole, decode(part));
  whole.ranks = static_cast<int>(parts.size());
  check_whole(whole, ErrorCode::mismatch);
  for (const IndexedFile& file : whole.files) {
    const std::string path = folder.folder() + '/' + file.name;
    const Status seen = attempt([&] {
      if (File::open(path).bytes() != file.bytes) throw Error(ErrorCode::io, path + ": has another size");
    });
    if (!seen.ok()) {
      throw Error(ErrorCode::io, seen.message() + ", on the host of rank 0; is the folder one that all ranks share?");
    }
  }
  const std::string text = encode(whole);
  if (static_cast<std::int64_t>(text.size()) > kLargestIndex) {
    throw Error(ErrorCode::unsupported, "the index has " + std::to_string(text.size()) + " bytes; at most " +
                                            std::to_string(kLargestIndex) + " are supported; save fewer tensors");
  }
  write_file(folder.folder() + '/' + kIndexName, text);
  folder.commit();
}

/// Collective.
void write(const Ranks& ranks, const Share& share) {
  std::optional<NewFolder> made;  // on rank 0; removed with this function, unless it has become the checkpoint
  ranks.on_root([&] { made.emplace(share.path, files_of); });
  const std::string folder = ranks.from_root(made ? made->folder() : std::string());
  PartWriter part(folder, ranks.rank(), share.entries);
  ranks.in_steps([&] { return part.step(); });
  const std::vector<std::string> parts = ranks.at_root(encode(part.index()));
  ranks.on_root([&] { finish(*made, parts); });
}

constexpr const char* kSave = "save_checkpoint";

}  // namespace
}  // namespace checkpoint

void detail::save_checkpoint(const Group& group, const std::string& path, const CheckpointEntries& entries,
                             const CheckpointOptions& options) {
  const checkpoint::Ranks ranks(group, checkpoint::kSave, options.timeout);
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
                             const CheckpointOptions& options) {
  const checkpoint::Ranks ranks(impl_->group, checkpoint::kSave, options.timeout);
  impl_->share = checkpoint::plan(ranks, path, entries);
  std::promise<bool> is_agreed;  // no thread writes unless all ranks have a copy and a thread
  const auto begin = [&] {
    impl_->copies.clear();
    for (detail::CheckpointEntry& entry : impl_->share.entries) {
      Tensor& copy = impl_->copies.emplace_back(entry.view.dtype(), entry.view.shape());
      if (entry.view.elements() > 0) {
        std::memcpy(copy.data(), entry.view.data(), static_cast<std::size_t>(entry.view.bytes()));
      }
      entry.view = std::as_const(copy).view();
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
