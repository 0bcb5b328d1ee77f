package main

import (
	"fmt"
	"slices"
	"strings"
)

// rustTypes are C's types in Rust; a struct has the name that it has in C.
var rustTypes = map[string]string{
	"void": "c_void", "char": "c_char", "int": "c_int", "size_t": "usize", "float": "f32", "double": "f64", "bool": "bool",
	"uint8_t": "u8", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64",
}

// rustType is a C type in Rust: pointers with what they may change.
func rustType(ctype string) string {
	words := strings.Fields(strings.ReplaceAll(ctype, "*", " * "))
	constant, base := false, ""
	for _, w := range words {
		switch {
		case w == "const":
			constant = true
		case w == "*":
			base = map[bool]string{true: "*const ", false: "*mut "}[constant] + base
			constant = false
		default:
			if base = rustTypes[w]; base == "" {
				base = w
			}
		}
	}
	return base
}

// rustFunction is a pointer to a function, which may be null.
func rustFunction(s *signature) string {
	list := make([]string, len(s.parameters))
	for i, p := range s.parameters {
		t := rustType(p.ctype)
		if p.function != nil {
			t = rustFunction(p.function)
		}
		if p.name == "" {
			list[i] = t
		} else {
			list[i] = rustName(p.name) + ": " + t
		}
	}
	result := ""
	if s.result != "void" {
		result = " -> " + rustType(s.result)
	}
	return fmt.Sprintf("Option<unsafe extern \"C\" fn(%s)%s>", strings.Join(list, ", "), result)
}

// rustName is a name that is no word of the language.
func rustName(name string) string {
	if slices.Contains([]string{"type", "fn", "in", "ref", "self", "move", "impl", "where"}, name) {
		return name + "_"
	}
	return name
}

const rustAllow = "#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code)]\n\n"

// rustMirror writes the constants and structs of headers, one after the other.
func rustMirror(paths []string, headers []*header) ([]byte, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "// %s\n\n//! The C ABI of graft's plugins. What each part means is said in the headers.\n%s",
		generated(strings.Join(paths, " and ")), rustAllow)
	out.WriteString("use std::ffi::{c_char, c_void};\n\n")
	for _, h := range headers {
		for _, c := range h.constants {
			if strings.HasPrefix(c.value, `"`) {
				fmt.Fprintf(&out, "pub const %s: &str = %s;\n", c.name, c.value)
			} else {
				fmt.Fprintf(&out, "pub const %s: i64 = %s;\n", c.name, c.value)
			}
		}
	}
	for _, h := range headers {
		for _, s := range h.structs {
			fmt.Fprintf(&out, "\n#[repr(C)]\n#[derive(Clone, Copy)]\npub struct %s {\n", s.name)
			for _, m := range s.members {
				t := rustType(m.ctype)
				if m.ctype == "function" {
					f, err := parsePointer(strings.TrimSuffix(spaces.ReplaceAllString(m.declared, " "), ";"))
					if err != nil || f == nil {
						return nil, fmt.Errorf("%s.%s: found %q, needed a pointer to a function", s.name, m.name, m.declared)
					}
					t = rustFunction(f)
				}
				fmt.Fprintf(&out, "    pub %s: %s,\n", rustName(m.name), t)
			}
			out.WriteString("}\n")
		}
		for _, f := range h.functions {
			list := make([]string, len(f.parameters))
			for i, p := range f.parameters {
				list[i] = p + ": i64"
			}
			fmt.Fprintf(&out, "\npub const fn %s(%s) -> i64 {\n    %s\n}\n", f.name, strings.Join(list, ", "),
				strings.Join(f.words, " "))
		}
	}
	// The sizes on which every side agrees.
	out.WriteString("\n#[cfg(target_pointer_width = \"64\")]\nconst _: () = {\n")
	for _, h := range headers {
		for _, s := range h.structs {
			fmt.Fprintf(&out, "    assert!(std::mem::size_of::<%s>() == %d);\n", s.name, s.size)
			for _, m := range s.members {
				fmt.Fprintf(&out, "    assert!(std::mem::offset_of!(%s, %s) == %d);\n", s.name, rustName(m.name), m.offset)
			}
		}
	}
	out.WriteString("};\n")
	return []byte(out.String()), nil
}

// rustORT writes what the kits use of ONNX Runtime.
func rustORT(o *ort) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "/* %s\n *\n"+ortNotice+" */\n%s", generated("onnxruntime_c_api.h"), ortVersion, rustAllow)
	out.WriteString("use std::ffi::{c_char, c_int, c_void};\n")
	for _, name := range o.opaque {
		fmt.Fprintf(&out, "\n#[repr(C)]\npub struct %s {\n    _opaque: [u8; 0],\n}\n", name)
	}
	for _, e := range o.enums {
		fmt.Fprintf(&out, "\npub type %s = c_int;\n", e.name)
		for _, v := range e.values {
			fmt.Fprintf(&out, "pub const %s: %s = %d;\n", v.name, e.name, v.value)
		}
	}
	for _, t := range o.structs {
		fmt.Fprintf(&out, "\n#[repr(C)]\npub struct %s {\n", t.name)
		passed := 0
		for i, s := range append(slices.Clone(t.slots), slot{data: "end"}) {
			if s.function == nil && s.data == "" {
				passed++
				continue
			}
			if passed > 0 {
				fmt.Fprintf(&out, "    pub other_%d: [*mut c_void; %d],\n", i-passed, passed)
				passed = 0
			}
			switch {
			case s.function != nil:
				fmt.Fprintf(&out, "    pub %s: %s,\n", s.function.name, rustFunction(s.function))
			case s.data != "end":
				m := nameAtEnd.FindStringSubmatch(s.data)
				fmt.Fprintf(&out, "    pub %s: %s,\n", m[2], rustType(m[1]))
			}
		}
		out.WriteString("}\n")
	}
	return []byte(out.String())
}
