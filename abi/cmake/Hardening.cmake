# What every library of a plugin is compiled and linked with, so that an error in it ends the process before it can be
# used: GRAFT_HARDEN_COMPILE and GRAFT_HARDEN_LINK, lists of options that this compiler and linker know.
# `graft plugin inspect` shows what of it a finished library has.
#
# A library's IBT and SHSTK marks are those of all that was linked into it: where the distribution's libstdc++.a has
# none, neither has the library, though its own code has the instructions.

include_guard(GLOBAL)
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)

set(GRAFT_HARDEN_COMPILE "")
foreach(flag IN ITEMS -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "GRAFT_HAS${flag}" has)
  check_cxx_compiler_flag("${flag}" ${has})
  if(${has})
    list(APPEND GRAFT_HARDEN_COMPILE "${flag}")
  endif()
endforeach()

if(NOT GRAFT_SANITIZE)  # sanitizers check more, and do not see through the checked functions
  # glibc warns of a level that it or the compiler does not know.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("#include <cstring>\nint main() { return 0; }" GRAFT_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  list(APPEND GRAFT_HARDEN_COMPILE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$<IF:$<BOOL:${GRAFT_HAS_FORTIFY_3}>,3,2>)
endif()

set(GRAFT_HARDEN_LINK "")
foreach(flag IN ITEMS noexecstack relro now separate-code text)
  string(MAKE_C_IDENTIFIER "GRAFT_HAS_Z_${flag}" has)
  check_linker_flag(CXX "LINKER:-z,${flag}" ${has})
  if(${has})
    list(APPEND GRAFT_HARDEN_LINK "LINKER:-z,${flag}")
  endif()
endforeach()
