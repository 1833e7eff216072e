// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/handshake.hpp"

#include <algorithm>

namespace kolo::tcp {

GreetingBytes make_greeting(const base::Word& word, const Nonce& nonce) {
  const base::GreetingBytes greeting = base::make_greeting(word);
  GreetingBytes bytes{};
  std::copy(nonce.begin(), nonce.end(), std::copy(greeting.begin(), greeting.end(), bytes.begin()));
  return bytes;
}

std::string judge_greeting(const GreetingBytes& bytes, const Nonce& nonce, base::Word& word) {
  base::GreetingBytes greeting{};
  std::copy_n(bytes.begin(), greeting.size(), greeting.begin());
  std::string wrong = base::judge_greeting(greeting, word);
  if (wrong.empty() && !std::equal(nonce.begin(), nonce.end(), bytes.begin() + greeting.size()))
    wrong = "is another process";
  return wrong;
}

}  // namespace kolo::tcp
