package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// generated is the first line of what follows from a header.
func generated(path string) string {
	return fmt.Sprintf("Code generated from %s by abi/gen. DO NOT EDIT.", path)
}

// initialisms are the words that Go writes in capitals.
var initialisms = map[string]string{
	"abi": "ABI", "cpu": "CPU", "cuda": "CUDA", "id": "ID", "ort": "ORT", "onnx": "ONNX", "api": "API",
	"bfloat": "BFloat", "ok": "OK", "kv": "KV",
}

// goName turns graft_run_context, GRAFT_MAX_RANK or num_inputs into RunContext, MaxRank, NumInputs.
func goName(name string) string {
	var out strings.Builder
	for _, word := range strings.Split(strings.TrimPrefix(strings.ToLower(name), "graft_"), "_") {
		if capital, ok := initialisms[word]; ok {
			out.WriteString(capital)
		} else if word != "" {
			out.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return out.String()
}

// goType is the mirror of a member's type. Function pointers are addresses to call through purego.
func (h *header) goType(ctype string) (string, error) {
	if ctype == "function" {
		return "uintptr", nil
	}
	plain := strings.TrimSpace(strings.ReplaceAll(ctype, "const", ""))
	base := strings.TrimSpace(strings.TrimRight(plain, "* "))
	stars := strings.Count(plain, "*")
	if base == "void" && stars > 0 {
		return strings.Repeat("*", stars-1) + "unsafe.Pointer", nil
	}
	if base == "char" && stars > 0 {
		return strings.Repeat("*", stars) + "byte", nil
	}
	if s, ok := scalars[base]; ok {
		return strings.Repeat("*", stars) + s.goType, nil
	}
	if _, ok := h.byName[base]; ok || stars > 0 && strings.HasPrefix(base, "graft_") {
		return strings.Repeat("*", stars) + goName(base), nil
	}
	return "", fmt.Errorf("found type %s, which has no mirror", ctype)
}

func comment(out *bytes.Buffer, indent, text string) {
	for _, line := range strings.Split(text, "\n") {
		fmt.Fprintf(out, "%s// %s\n", indent, strings.TrimSpace(line))
	}
}

// goMirror writes the constants, structs and functions of the header at a path.
func goMirror(path string, h *header) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "// %s\n\npackage abi\n\n", generated(path))
	if len(h.structs) > 0 {
		out.WriteString("import \"unsafe\"\n\n")
	}
	out.WriteString("// The macros of the header.\nconst (\n")
	for _, c := range h.constants {
		if c.section != "" {
			out.WriteString("\n")
			comment(&out, "\t", c.section)
		}
		fmt.Fprintf(&out, "\t%s = %s", goName(c.name), c.value)
		if c.comment != "" {
			fmt.Fprintf(&out, " // %s", c.comment)
		}
		out.WriteString("\n")
	}
	out.WriteString(")\n")
	for _, s := range h.structs {
		fmt.Fprintf(&out, "\n// %s mirrors %s.\n", goName(s.name), s.name)
		if s.comment != "" {
			out.WriteString("//\n")
			comment(&out, "", s.comment)
		}
		fmt.Fprintf(&out, "type %s struct {\n", goName(s.name))
		for _, m := range s.members {
			t, err := h.goType(m.ctype)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", s.name, m.name, err)
			}
			if m.ctype == "function" {
				if m.comment != "" {
					comment(&out, "\t", m.comment)
					out.WriteString("\t//\n")
				}
				comment(&out, "\t", "\t"+m.declared)
				fmt.Fprintf(&out, "\t%s %s\n", goName(m.name), t)
				continue
			}
			fmt.Fprintf(&out, "\t%s %s", goName(m.name), t)
			if m.comment != "" {
				fmt.Fprintf(&out, " // %s", strings.ReplaceAll(m.comment, "\n", " "))
			}
			out.WriteString("\n")
		}
		out.WriteString("}\n")
	}
	for _, f := range h.functions {
		goFunction(&out, f)
	}
	return format.Source(out.Bytes())
}

// goLayout writes a test that compares the mirror's sizes and offsets with those of the header.
func goLayout(h *header) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "// %s\n\npackage abi\n\nimport (\n\t\"testing\"\n\t\"unsafe\"\n)\n\n", generated(headerPath))
	out.WriteString("// TestLayout compares what Go laid out with what the header's rules say. The C side asserts the " +
		"same\n" +
		"// numbers in abi/graft_plugin_layout.h.\nfunc TestLayout(t *testing.T) {\n" +
		"\tfor _, c := range []struct {\n\t\twhat string\n\t\tgot uintptr\n\t\twant uintptr\n\t}{\n")
	for _, s := range h.structs {
		name := goName(s.name)
		fmt.Fprintf(&out, "\t\t{\"size of %s\", unsafe.Sizeof(%s{}), %d},\n", s.name, name, s.size)
		for _, m := range s.members {
			fmt.Fprintf(&out, "\t\t{\"offset of %s.%s\", unsafe.Offsetof(%s{}.%s), %d},\n", s.name, m.name, name, goName(m.name),
				m.offset)
		}
	}
	out.WriteString("\t} {\n\t\tif c.got != c.want {\n\t\t\tt.Errorf(\"%s is %d, needed %d\", c.what, c.got, " +
		"c.want)\n\t\t}\n\t}\n}\n")
	return format.Source(out.Bytes())
}

// cAsserts writes the header that stops a C or C++ compiler which lays out otherwise.
func cAsserts(h *header) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "/* %s\n *\n", generated(headerPath))
	out.WriteString(" * Sizes and offsets that every side of the interface agrees on. */\n" +
		"#ifndef GRAFT_PLUGIN_LAYOUT_H_\n#define GRAFT_PLUGIN_LAYOUT_H_\n\n" +
		"#include <assert.h>\n#include <stddef.h>\n\n#include \"graft_plugin.h\"\n\n// clang-format off\n")
	for _, s := range h.structs {
		fmt.Fprintf(&out, "static_assert(sizeof(%s) == %d, \"size of %s\");\n", s.name, s.size, s.name)
		for _, m := range s.members {
			fmt.Fprintf(&out, "static_assert(offsetof(%s, %s) == %d, \"offset of %s.%s\");\n", s.name, m.name, m.offset, s.name,
				m.name)
		}
	}
	out.WriteString("// clang-format on\n\n#endif /* GRAFT_PLUGIN_LAYOUT_H_ */\n")
	return out.Bytes()
}
