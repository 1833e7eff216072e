# SPDX-License-Identifier: Apache-2.0
"""`python -m kolopy.tensorflow`: compiles the kernels, and says where they are."""

from kolopy.tensorflow import _build

print(_build.compiled())
