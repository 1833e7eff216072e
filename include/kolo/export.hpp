// SPDX-License-Identifier: Apache-2.0
// KOLO_API marks the functions and classes that libkolo exports; everything else in the library has hidden visibility.
// Shared and static builds use the same mark: ELF has no separate mark for imports.
#pragma once

#define KOLO_API __attribute__((visibility("default")))
// The same for a class of results, none of which is to be dropped. (GCC 12 takes no [[nodiscard]] beside the other;
// nvcc takes an assignment to such an object for a dropped one.)
#ifdef __CUDACC__
#define KOLO_RESULT KOLO_API
#else
#define KOLO_RESULT [[nodiscard, gnu::visibility("default")]]
#endif
