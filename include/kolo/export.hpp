// SPDX-License-Identifier: Apache-2.0
// KOLO_API marks the functions and classes that libkolo exports; everything else in the library has hidden visibility.
// Shared and static builds use the same mark: ELF has no separate mark for imports.
#pragma once

#define KOLO_API __attribute__((visibility("default")))
