// What code for several instruction sets asks of a compiler's runtime on x86-64: GCC's and Clang's
// __builtin_cpu_supports and target_clones read these symbols, whose layout both fix. libgcc and
// compiler-rt have them, the runtime of Portable.cmake's compiler has not.
#include <cpuid.h>
#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))

// Numbers of features, as the compilers know them.
enum Feature {
  kCmov = 0,
  kMmx = 1,
  kPopcnt = 2,
  kSse = 3,
  kSse2 = 4,
  kSse3 = 5,
  kSsse3 = 6,
  kSse41 = 7,
  kSse42 = 8,
  kAvx = 9,
  kAvx2 = 10,
  kFma = 14,
  kAvx512f = 15,
  kBmi = 16,
  kBmi2 = 17,
  kAes = 18,
  kPclmul = 19,
  kAvx512vl = 20,
  kAvx512bw = 21,
  kAvx512dq = 22,
  kAvx512cd = 23,
  kAvx512vbmi = 26,
  kAvx512ifma = 27,
  kAvx512vpopcntdq = 30,
  kAvx512vbmi2 = 31,
  kGfni = 32,
  kVpclmulqdq = 33,
  kAvx512vnni = 34,
  kAvx512bitalg = 35,
  kAvx512bf16 = 36,
};

// Vendor, type and subtype stay zero, which is none that the compilers know: they are for dispatch
// by model.
HIDDEN struct { unsigned vendor, type, subtype, features[1]; } __cpu_model;
HIDDEN unsigned __cpu_features2[3];

struct Row {
  int feature, leaf, word, bit;
};

// Where CPUID has each: leaf 1, or leaf 7 with its subleaf 0 or 1 (71); eax, ebx, ecx, edx are
// words 0 to 3.
static const struct Row kAlways[] = {
    {kCmov, 1, 3, 15},   {kMmx, 1, 3, 23},  {kSse, 1, 3, 25},   {kSse2, 1, 3, 26},
    {kSse3, 1, 2, 0},    {kSsse3, 1, 2, 9}, {kSse41, 1, 2, 19}, {kSse42, 1, 2, 20},
    {kPopcnt, 1, 2, 23}, {kAes, 1, 2, 25},  {kPclmul, 1, 2, 1}, {kBmi, 7, 1, 3},
    {kBmi2, 7, 1, 8},    {kGfni, 7, 2, 8},
};
static const struct Row kWide[] = {
    // the system saves registers of 256 bits
    {kAvx, 1, 2, 28},
    {kFma, 1, 2, 12},
    {kAvx2, 7, 1, 5},
    {kVpclmulqdq, 7, 2, 10},
};
static const struct Row kWidest[] = {
    // of 512 bits
    {kAvx512f, 7, 1, 16},      {kAvx512dq, 7, 1, 17},        {kAvx512ifma, 7, 1, 21},
    {kAvx512cd, 7, 1, 28},     {kAvx512bw, 7, 1, 30},        {kAvx512vl, 7, 1, 31},
    {kAvx512vbmi, 7, 2, 1},    {kAvx512vbmi2, 7, 2, 6},      {kAvx512vnni, 7, 2, 11},
    {kAvx512bitalg, 7, 2, 12}, {kAvx512vpopcntdq, 7, 2, 14}, {kAvx512bf16, 71, 0, 5},
};

static void Note(const struct Row* rows, size_t count, unsigned first[4], unsigned seventh[4],
                 unsigned next[4]) {
  for (size_t i = 0; i < count; ++i) {
    const unsigned* words = rows[i].leaf == 1 ? first : rows[i].leaf == 7 ? seventh : next;
    if ((words[rows[i].word] >> rows[i].bit & 1) == 0) continue;
    const int feature = rows[i].feature;
    if (feature < 32) {
      __cpu_model.features[0] |= 1u << feature;
    } else {
      __cpu_features2[feature / 32 - 1] |= 1u << (feature % 32);
    }
  }
}

// Called by whoever asks before constructors have run, as the choice among target_clones does.
HIDDEN __attribute__((constructor(101))) int __cpu_indicator_init(void) {
  if (__cpu_model.features[0] != 0) return 0;
  unsigned first[4] = {0}, seventh[4] = {0}, next[4] = {0};
  if (!__get_cpuid(1, &first[0], &first[1], &first[2], &first[3])) return -1;
  if (__get_cpuid_count(7, 0, &seventh[0], &seventh[1], &seventh[2], &seventh[3]) &&
      seventh[0] >= 1) {
    __get_cpuid_count(7, 1, &next[0], &next[1], &next[2], &next[3]);
  }
  unsigned saved = 0;
  if ((first[2] >> 27 & 1) != 0) {  // OSXSAVE: XGETBV says which registers the system saves
    unsigned high;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  }
#define NOTE(rows) Note(rows, sizeof(rows) / sizeof(*(rows)), first, seventh, next)
  NOTE(kAlways);
  if ((saved & 0x06) == 0x06) NOTE(kWide);
  if ((saved & 0xe6) == 0xe6) NOTE(kWidest);
  return 0;
}
