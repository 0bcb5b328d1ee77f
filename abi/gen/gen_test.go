package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestGenerated fails when a header changed and what follows from it did not.
func TestGenerated(t *testing.T) {
	root := filepath.Join("..", "..")
	files := must.Value(generate(root))(t)
	for path, want := range files {
		got := must.Value(os.ReadFile(filepath.Join(root, path)))(t)
		if !bytes.Equal(got, want) {
			t.Errorf("%s does not follow from its header any more: run go generate ./host/base/abi", path)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ what, source, want string }{
		{"an enum", "enum graft_code { A };", "which the mirror cannot show"},
		{"a long", "typedef struct graft_x {\n  long size;\n} graft_x;", "found type long"},
		{"a bool", "typedef struct graft_x {\n  bool on;\n} graft_x;", "found type bool"},
		{"a bitfield", "typedef struct graft_x {\n  uint32_t on : 1;\n} graft_x;", "found member"},
		{"an array", "typedef struct graft_x {\n  char text[8];\n} graft_x;", "found member"},
		{"padding between", "typedef struct graft_x {\n  int32_t a;\n  void* b;\n} graft_x;",
			"found offset 4, needed a multiple of 8; declare the padding"},
		{"padding after", "typedef struct graft_x {\n  void* a;\n  int32_t b;\n} graft_x;",
			"found size 12, needed a multiple of 8; declare the padding"},
		{"an unknown struct", "typedef struct graft_x {\n  graft_y y;\n} graft_x;", "found type graft_y"},
		{"an expression", "#define GRAFT_X (1 << 3)", "needed one number or string"},
		{"another prefix", "#define OTHER 1", "needed #define GRAFT_NAME value"},
		{"another name at the end", "typedef struct graft_x {\n  int32_t a;\n} graft_y;", "needed } graft_x;"},
		{"an open comment", "/* text", "comment without end"},
		{"a function of another type", "static inline int32_t graft_f(int64_t a) {\n  return a;\n}",
			"needed static inline int64_t"},
		{"a function of two statements", "static inline int64_t graft_f(int64_t a) {\n  a = 1;\n  return a;\n}",
			"needed static inline int64_t"},
		{"a parameter of another type", "static inline int64_t graft_f(int32_t a) {\n  return a;\n}", "needed int64_t name"},
		{"an unknown name", "static inline int64_t graft_f(int64_t a) {\n  return a + b;\n}", `found "b"`},
		{"another operator", "static inline int64_t graft_f(int64_t a) {\n  return a ? 1 : 2;\n}", `found "?"`},
		{"an open function", "static inline int64_t graft_f(int64_t a) {\n  return a;", "function without end"},
		{"an open declaration", "typedef struct graft_x {\n  int32_t a", "declaration without end"},
	} {
		must.Fail(t, must.Error(parse(c.source)), c.want)
	}
}

func TestParseLayout(t *testing.T) {
	_, err := parse("typedef struct graft_a {\n  uint8_t x;\n  uint8_t y;\n  uint16_t z;\n} graft_a;\n" +
		"/* Two. */\ntypedef struct graft_b {\n  const void* const** p; /* it */\n  graft_a a;\n" +
		"  int32_t (*call)(void* first,\n                  double second);\n} graft_b;\n")
	if err == nil {
		t.Fatal("found no error, needed one: call stands at offset 12")
	}
	h := must.Value(parse("typedef struct graft_a {\n  uint8_t x;\n  uint8_t y;\n  uint16_t z;\n} graft_a;\n" +
		"/* Two. */\ntypedef struct graft_b {\n  const void* const** p; /* it */\n  graft_a a;\n  uint32_t reserved;\n" +
		"  int32_t (*call)(void* first,\n                  double second);\n} graft_b;\n"))(t)
	b := h.byName["graft_b"]
	if b.size != 24 || b.comment != "Two." || b.members[0].comment != "it" || b.members[3].offset != 16 {
		t.Errorf("found %+v", b)
	}
	if got, _ := h.goType(b.members[0].ctype); got != "**unsafe.Pointer" {
		t.Errorf("found mirror %s, needed **unsafe.Pointer", got)
	}
}

func TestMirrorOfFunctions(t *testing.T) {
	h, err := parse("#define GRAFT_SIZE 4\n/* Half. */\nstatic inline int64_t graft_half(int64_t a) { return a / 2; }\n" +
		"static inline int64_t graft_cache_kv(int64_t kv_heads,\n    int64_t n) {\n  return graft_half(kv_heads) *\n      " +
		"(n % GRAFT_SIZE);\n}\n")
	must.Succeed(t, err)
	got := must.Value(goMirror("a.h", h))(t)
	for _, want := range []string{
		"// Half mirrors graft_half.\n//\n// Half.\nfunc Half(a int64) int64 {\n\treturn a / 2\n}\n",
		"func CacheKV(kvHeads, n int64) int64 {\n\treturn Half(kvHeads) * (n % Size)\n}\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("found %s, needed %s", got, want)
		}
	}
}
