// SPDX-License-Identifier: Apache-2.0
#include "c10d/errors.hpp"

#include "c10d/versions.hpp"

namespace kolo::c10d {
namespace {

constexpr c10::SourceLocation kHere{"kolo", "kolo_torch", 0};

template <class Exception>
std::exception_ptr make(const std::string& text) {
  return std::make_exception_ptr(Exception(kHere, text));
}

}  // namespace

std::exception_ptr exception_for(const std::string& call, ErrorCode code, const std::string& sentence) {
  // Programs and PyTorch's own tests look for " Timed out ", a word of its own, as Gloo says it.
  const bool says_so = code != ErrorCode::timeout || sentence.find("imed out ") != std::string::npos;
  const std::string text = "kolo: " + call + ": " + (says_so ? "" : "Timed out waiting: ") + sentence;
  switch (code) {
  case ErrorCode::invalid_argument:
    return make<c10::ValueError>(text);
  case ErrorCode::unsupported:
    return make<c10::NotImplementedError>(text);
  default:
    return make<CommunicationError>(text);
  }
}

void raise(const std::string& call, ErrorCode code, const std::string& sentence) {
  std::rethrow_exception(exception_for(call, code, sentence));
}

}  // namespace kolo::c10d
