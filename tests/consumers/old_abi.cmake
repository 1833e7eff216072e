# SPDX-License-Identifier: Apache-2.0
# A LibTorch (here: what the configuration looks at of one) that was compiled for the C++ library's older ABI is refused,
# with the remedy, unless Kolo is compiled for it as well. Run by cmake -P with SOURCE and WORK.
file(REMOVE_RECURSE "${WORK}")
set(torch "${WORK}/torch")
file(WRITE "${torch}/include/torch/csrc/api/include/torch/torch.h" "")
file(WRITE "${torch}/include/torch/csrc/api/include/torch/version.h"
           "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 5\n#define TORCH_VERSION_PATCH 1\n")
file(WRITE "${torch}/include/ATen/ATen.h" "")
file(WRITE "${torch}/lib/libtorch_cpu.so" "")
file(WRITE "${torch}/lib/libc10.so" "")
file(WRITE "${torch}/share/cmake/Torch/TorchConfig.cmake" "set(TORCH_CXX_FLAGS \"-D_GLIBCXX_USE_CXX11_ABI=0\")\n")

function(configure asked flags status_is says)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/build" -DKOLO_WITH_TORCH=${asked}
                          "-DCMAKE_CXX_FLAGS=${flags}" "-DCMAKE_PREFIX_PATH=${torch}" -DKOLO_WITH_MPI=OFF
                          -DKOLO_WITH_CUDA=OFF -DKOLO_BUILD_TESTS=OFF -DKOLO_BUILD_BENCH=OFF -DKOLO_BUILD_EXAMPLES=OFF
                          -DKOLO_BUILD_TOOLS=OFF -DKOLO_INSTALL=OFF
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(NOT status EQUAL status_is OR NOT said MATCHES "${says}")
    message(FATAL_ERROR "Expected status ${status_is} and '${says}', got ${status}: ${said}")
  endif()
endfunction()

set(reason "was compiled for the C\\+\\+ library's older ABI: configure with")
configure(AUTO "" 0 "LibTorch left out: the LibTorch in [^ ]+ ${reason}")
configure(ON "" 1 "KOLO_WITH_TORCH=ON, but the LibTorch in [^ ]+ ${reason}")
configure(ON "-D_GLIBCXX_USE_CXX11_ABI=0" 0 "LibTorch built, with 2.5.1")
