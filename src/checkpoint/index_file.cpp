// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/index_file.hpp"

#include <algorithm>

#include <kolo/error.hpp>

#include "checkpoint/disk.hpp"

namespace kolo::checkpoint {
namespace {

/// Calls `body`, and puts the path before the sentence of the error that it throws.
template <class Body>
auto with_path(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.status().message());
  }
}

}  // namespace

Index read_index(const std::string& folder, std::string& text) {
  const std::string path = folder + '/' + kIndexName;
  const File file = File::open(path);
  text.assign(static_cast<std::size_t>(std::min(file.bytes(), static_cast<std::int64_t>(kBeginningBytes))), '\0');
  file.read_at(0, text.data(), text.size());
  with_path(path, [&] {
    check_beginning(text);
    if (file.bytes() > kLargestIndex) {
      throw Error(ErrorCode::io, "has " + std::to_string(file.bytes()) + " bytes; at most " +
                                     std::to_string(kLargestIndex) + " are expected");
    }
  });
  text.assign(static_cast<std::size_t>(file.bytes()), '\0');
  file.read_at(0, text.data(), text.size());
  return with_path(path, [&] {
    Index index = decode(text);
    check_whole(index, ErrorCode::io);
    return index;
  });
}

std::vector<std::string> files_of(const std::string& folder) {
  std::string text;
  std::vector<std::string> names{kIndexName};
  for (const IndexedFile& file : read_index(folder, text).files) names.push_back(file.name);
  return names;
}

}  // namespace kolo::checkpoint
