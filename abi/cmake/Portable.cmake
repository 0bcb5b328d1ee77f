# A toolchain whose libraries run where glibc is as old as 2.28, for x86-64 and arm64: Clang with the glibc and libc++ that ziglang's
# package from PyPI carries.
#
#   cmake -S . -B build/release/x86_64 -DCMAKE_TOOLCHAIN_FILE=abi/cmake/Portable.cmake \
#         -DGRAFT_ZIG=build/zig/bin/python -DGRAFT_TARGET=x86_64
#
# GRAFT_ZIG     the Python that has the package ziglang
# GRAFT_TARGET  x86_64 or aarch64

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "${GRAFT_TARGET}")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GRAFT_ZIG GRAFT_TARGET)
set(graft_portable_glibc 2.28)

foreach(language IN ITEMS C CXX)
  if(language STREQUAL C)
    set(command cc)
  else()
    set(command c++)
  endif()
  set(CMAKE_${language}_COMPILER "${GRAFT_ZIG};-m;ziglang;${command};-target;${GRAFT_TARGET}-linux-gnu.${graft_portable_glibc}")
endforeach()

# Nothing of this machine's but headers that stand by themselves.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# ziglang turns off every extension by name, and Highway's code for AVX-512 does not turn this one on again: it only says that registers
# of 512 bits are meant where AVX-512 is on.
if(GRAFT_TARGET STREQUAL "x86_64")
  set(CMAKE_CXX_FLAGS_INIT "-Xclang -target-feature -Xclang +evex512")
endif()

# No names of functions, which libc++ has by the megabyte.
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)

# What a plugin's library is linked with besides.
if(GRAFT_TARGET STREQUAL "x86_64")
  set(graft_portable_runtime "${CMAKE_CURRENT_LIST_DIR}/cpu_model.c")
endif()
