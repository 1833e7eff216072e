// SPDX-License-Identifier: Apache-2.0
#include <kolo/error.hpp>

namespace kolo {

Error::Error(ErrorCode code, const std::string& message) : Error(Status(code, message)) {}
Error::Error(const Status& status) : std::runtime_error("kolo: " + status.message()), status_(status) {}
Error::~Error() = default;

}  // namespace kolo
