// The ELF note that lets a host read what a plugin needs without running it.
#ifndef GRAFT_KIT_NOTE_H_
#define GRAFT_KIT_NOTE_H_

#include "graft_plugin.h"

#define GRAFT_KIT_STRING_(x) #x
#define GRAFT_KIT_STRING(x) GRAFT_KIT_STRING_(x)

#if defined(__aarch64__)
#define GRAFT_KIT_ARCH "arm64"
#elif defined(__x86_64__)
#define GRAFT_KIT_ARCH "amd64"
#else
#error "graft: plugins are built for x86-64 or arm64"
#endif

// Writes the note with the assembler, which lets it count the bytes and leaves no symbol behind.
// `lines` is one string literal (or several in a row) in which \\n ends each "key=value" line.
#define GRAFT_NOTE(lines) \
  __asm__(".pushsection .note.graft,\"a\",%note\n"              \
          ".balign 4\n"                                         \
          ".long 6\n" /* strlen of the owner, with its zero */  \
          ".long 7772f-7771f\n"                                 \
          ".long " GRAFT_KIT_STRING(GRAFT_NOTE_TYPE) "\n"       \
          ".asciz \"" GRAFT_NOTE_OWNER "\"\n"                   \
          ".balign 4\n"                                         \
          "7771: .ascii \"" lines "\"\n"                        \
          "7772:\n"                                             \
          ".balign 4\n"                                         \
          ".popsection\n")

// The lines every plugin has; the build defines the GRAFT_PLUGIN_* strings.
#define GRAFT_NOTE_LINES \
  "abi=" GRAFT_KIT_STRING(GRAFT_ABI_MAJOR) "." GRAFT_KIT_STRING(GRAFT_ABI_MINOR) "\\n"       \
  "name=" GRAFT_PLUGIN_NAME "\\n"                                                            \
  "version=" GRAFT_PLUGIN_VERSION "\\n"                                                      \
  "device=" GRAFT_PLUGIN_DEVICE "\\n"                                                        \
  "os=linux\\n"                                                                              \
  "arch=" GRAFT_KIT_ARCH "\\n"                                                               \
  "isa=" GRAFT_PLUGIN_ISA "\\n"

// What a CUDA library states besides.
#if defined(GRAFT_PLUGIN_SM) && defined(GRAFT_PLUGIN_CUDA)
#define GRAFT_NOTE_ALL_LINES             \
  GRAFT_NOTE_LINES "sm=" GRAFT_PLUGIN_SM \
                   "\\n"                 \
                   "cuda=" GRAFT_PLUGIN_CUDA "\\n"
#else
#define GRAFT_NOTE_ALL_LINES GRAFT_NOTE_LINES
#endif

#endif  // GRAFT_KIT_NOTE_H_
