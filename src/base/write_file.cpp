// SPDX-License-Identifier: Apache-2.0
#include "base/write_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/system_error.hpp"
#include "base/unique_fd.hpp"

namespace kolo::base {

void write_file(const std::string& path, std::string_view content) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw_errno("open " + path, errno);
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("write to " + path, errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace kolo::base
