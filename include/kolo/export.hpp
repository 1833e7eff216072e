// SPDX-License-Identifier: Apache-2.0
// KOLO_API marks what libkolo shows to its users; everything else in the library has hidden visibility.
// The same mark serves shared and static builds: on ELF there is no import side to tell apart.
#pragma once

#define KOLO_API __attribute__((visibility("default")))
