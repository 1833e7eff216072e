// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Of a function on the way of every small call. GNU ld puts such functions side by side. A process that gets its CPU
/// back finds no address translations of its own where processors forget them (virtual machines often do not offer
/// PCID), so each page of code that it touches costs it a walk through the page tables.
#if defined(__GNUC__)
#define KOLO_HOT __attribute__((hot))
#else
#define KOLO_HOT
#endif
