package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What the kits use of ONNX Runtime's C interface, so that an author needs no package of it.
var (
	ortEnums = []string{"ONNXTensorElementDataType", "OrtLoggingLevel", "OrtOpAttrType", "OrtErrorCode", "OrtMemType",
		"OrtMemoryInfoDeviceType", "OrtCustomOpInputOutputCharacteristic"}
	// The functions of OrtApi; the places of the others are left.
	ortFunctions = []string{"CreateStatus", "GetErrorMessage", "ReleaseStatus", "CreateTensorTypeAndShapeInfo",
		"GetDimensions", "GetDimensionsCount", "GetSymbolicDimensions",
		"SetDimensions", "SetSymbolicDimensions", "SetTensorElementType", "GetTensorElementType", "GetTensorMutableData",
		"GetTensorTypeAndShape", "GetTensorMemoryInfo",
		"ReleaseTensorTypeAndShapeInfo", "CreateCustomOpDomain", "CustomOpDomain_Add", "AddCustomOpDomain",
		"HasSessionConfigEntry", "GetSessionConfigEntry", "AddSessionConfigEntry",
		"KernelInfoGetAttribute_float", "KernelInfoGetAttribute_int64", "KernelInfoGetAttribute_string",
		"KernelInfoGetAttributeArray_float", "KernelInfoGetAttributeArray_int64",
		"KernelInfo_GetInputCount", "KernelInfo_GetOutputCount", "KernelInfoGetConstantInput_tensor",
		"KernelInfoGetAllocator", "ReleaseAllocator",
		"KernelContext_GetInput", "KernelContext_GetOutput", "KernelContext_GetLogger", "KernelContext_GetGPUComputeStream",
		"KernelContext_ParallelFor", "KernelContext_GetScratchBuffer",
		"Logger_LogMessage", "MemoryInfoGetId", "MemoryInfoGetDeviceType", "ReadOpAttr", "ShapeInferContext_GetAttribute",
		"ShapeInferContext_GetInputCount",
		"ShapeInferContext_GetInputTypeShape", "ShapeInferContext_SetOutputTypeShape"}
)

// ortVersion is the interface that every runtime of interest has: 1.18 and later.
const ortVersion = 18

// ort is what is taken out of onnxruntime_c_api.h.
type ort struct {
	enums   []enum
	structs []table
	opaque  []string // structs of which only pointers are known
}

type enum struct {
	name   string
	values []enumValue
}

type enumValue struct {
	name  string
	value int
}

// table is a struct of functions; a slot without a declaration is passed over.
type table struct {
	name  string
	slots []slot
}

type slot struct {
	data     string // "uint32_t version", of what is no function
	function *signature
}

// signature is a function pointer of C.
type signature struct {
	name, result string
	parameters   []parameter
}

type parameter struct {
	ctype, name string
	function    *signature // for a pointer to one
}

func (s *signature) declare() string {
	list := make([]string, len(s.parameters))
	for i, p := range s.parameters {
		switch {
		case p.function != nil:
			list[i] = p.function.declare()
		case p.name == "":
			list[i] = p.ctype
		default:
			list[i] = p.ctype + " " + p.name
		}
	}
	return fmt.Sprintf("%s (*%s)(%s)", s.result, s.name, strings.Join(list, ", "))
}

// ortHeaders finds the headers that the Go module of the runtime brings, in the version of go.mod.
func ortHeaders() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m github.com/yalue/onnxruntime_go: %w", err)
	}
	var all strings.Builder
	for _, name := range []string{"onnxruntime_error_code.h", "onnxruntime_c_api.h"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), name))
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

var (
	comments     = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	preprocessor = regexp.MustCompile(`(?m)^[ \t]*#.*$`)
	sal          = regexp.MustCompile(`\b_[A-Z][A-Za-z_]*_(?:\([^)]*\))?\s*`)
	decorations  = regexp.MustCompile(`\b(?:NO_EXCEPTION|ORT_ALL_ARGS_NONNULL|ORT_MUST_USE_RESULT)\b`)
	spaces       = regexp.MustCompile(`\s+`)
	statusForm   = regexp.MustCompile(`^ORT_API2_STATUS\((\w+), ?(.*)\)$`)
	releaseForm  = regexp.MustCompile(`^ORT_CLASS_RELEASE\((\w+)\)$`)
	slotName     = regexp.MustCompile(
		`^ORT_API2_STATUS\((\w+)|^ORT_CLASS_RELEASE\((\w+)|^[^(]+\( ?ORT_API_CALL ?\* ?(\w+)`)
	pointerForm = regexp.MustCompile(`^(.+?) ?\( ?(?:ORT_API_CALL ?)?\* ?(\w*) ?\) ?\((.*)\)$`)
	nameAtEnd   = regexp.MustCompile(`^(.*[*\s])(\w+)$`)
	ortName     = regexp.MustCompile(`\bOrt\w+\b`)
)

// plainC is the text of a header without comments, lines of the preprocessor and decorations.
func plainC(text string) string {
	text = preprocessor.ReplaceAllString(comments.ReplaceAllString(text, " "), " ")
	return spaces.ReplaceAllString(decorations.ReplaceAllString(sal.ReplaceAllString(text, ""), " "), " ")
}

// parseORT takes from the text of the runtime's headers what ortEnums and ortFunctions name.
func parseORT(text string) (*ort, error) {
	text = plainC(text)
	o := &ort{}
	for _, name := range ortEnums {
		body, err := between(text, "typedef enum "+name+" {", "}")
		if err != nil {
			return nil, err
		}
		e, next := enum{name: name}, 0
		for item := range strings.SplitSeq(body, ",") {
			key, value, given := strings.Cut(item, "=")
			if key = strings.TrimSpace(key); key == "" {
				continue
			}
			if value = strings.TrimSpace(value); given {
				if at := slices.IndexFunc(e.values, func(v enumValue) bool { return v.name == value }); at >= 0 {
					next = e.values[at].value
				} else if _, err := fmt.Sscan(value, &next); err != nil {
					return nil, fmt.Errorf("enum %s: %s is %q, needed is a number or an earlier name", name, key, value)
				}
			}
			e.values = append(e.values, enumValue{key, next})
			next++
		}
		o.enums = append(o.enums, e)
	}
	for _, t := range []struct {
		name, begins string
		keep         []string // nil for all
		last         string   // after which the rest is left out
	}{
		{"OrtAllocator", "typedef struct OrtAllocator {", nil, "Info"},
		{"OrtApiBase", "struct OrtApiBase {", nil, "GetVersionString"},
		{"OrtApi", "struct OrtApi {", ortFunctions, ""},
		{"OrtCustomOp", "struct OrtCustomOp {", nil, ""},
	} {
		body, err := between(text, t.begins, "};", "} OrtAllocator;")
		if err != nil {
			return nil, err
		}
		made, found := table{name: t.name}, 0
		for item := range strings.SplitSeq(body, ";") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			if t.keep != nil && !slices.ContainsFunc(slotName.FindStringSubmatch(item), func(name string) bool {
				return slices.Contains(t.keep, name) || slices.Contains(t.keep, "Release"+name)
			}) {
				made.slots = append(made.slots, slot{})
				continue
			}
			s, err := parseSlot(item)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			made.slots = append(made.slots, s)
			if found++; s.function != nil && s.function.name == t.last || found == len(t.keep) {
				break
			}
		}
		if t.keep != nil && found != len(t.keep) {
			return nil, fmt.Errorf("%s: found %d of %d functions", t.name, found, len(t.keep))
		}
		o.structs = append(o.structs, made)
	}
	o.name()
	return o, nil
}

// name lists the structs that functions point to and that have no declaration.
func (o *ort) name() {
	known := slices.Clone(ortEnums)
	for _, t := range o.structs {
		known = append(known, t.name)
	}
	for _, t := range o.structs {
		for _, s := range t.slots {
			if s.function == nil {
				continue
			}
			for _, n := range ortName.FindAllString(s.function.declare(), -1) {
				if !slices.Contains(known, n) {
					known = append(known, n)
					o.opaque = append(o.opaque, n)
				}
			}
		}
	}
	slices.Sort(o.opaque)
}

// between is the text after `begin` up to the first of some ends.
func between(text, begin string, ends ...string) (string, error) {
	_, rest, ok := strings.Cut(text, begin)
	at := -1
	for _, end := range ends {
		if i := strings.Index(rest, end); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if !ok || at < 0 {
		return "", fmt.Errorf("found no %q in ONNX Runtime's header", begin)
	}
	return rest[:at], nil
}

// parseSlot reads one member of a table.
func parseSlot(item string) (slot, error) {
	if m := statusForm.FindStringSubmatch(item); m != nil {
		list, err := parseParameters(m[2])
		return slot{function: &signature{m[1], "OrtStatus*", list}}, err
	}
	if m := releaseForm.FindStringSubmatch(item); m != nil {
		return slot{function: &signature{"Release" + m[1], "void", []parameter{{ctype: "Ort" + m[1] + "*", name: "input"}}}},
			nil
	}
	if f, err := parsePointer(item); f != nil || err != nil {
		return slot{function: f}, err
	}
	return slot{data: item}, nil
}

// parsePointer reads a pointer to a function; nil for anything else.
func parsePointer(item string) (*signature, error) {
	m := pointerForm.FindStringSubmatch(item)
	if m == nil {
		return nil, nil
	}
	list, err := parseParameters(m[3])
	return &signature{m[2], plainType(m[1]), list}, err
}

// parseParameters reads a list of parameters, in which commas may stand between parentheses.
func parseParameters(text string) ([]parameter, error) {
	var list []parameter
	depth, begin := 0, 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (text[i] != ',' || depth > 0) {
			depth += strings.Count(text[i:i+1], "(") - strings.Count(text[i:i+1], ")")
			continue
		}
		item := strings.TrimSpace(text[begin:i])
		begin = i + 1
		if item == "" || item == "void" {
			continue
		}
		if f, err := parsePointer(item); f != nil || err != nil {
			if err != nil {
				return nil, err
			}
			list = append(list, parameter{function: f, name: f.name})
			continue
		}
		item, array := strings.CutSuffix(item, "[]")
		p := parameter{ctype: plainType(item)}
		if m := nameAtEnd.FindStringSubmatch(item); m != nil &&
			!slices.Contains([]string{"int", "bool", "float", "char", "const"}, m[2]) {
			p = parameter{ctype: plainType(m[1]), name: m[2]}
		}
		if array {
			p.ctype += "*"
		}
		if strings.ContainsAny(p.ctype, "()[]") {
			return nil, fmt.Errorf("found parameter %q", item)
		}
		list = append(list, p)
	}
	return list, nil
}

// plainType is a type without the words struct and enum.
func plainType(t string) string {
	t = strings.NewReplacer("struct ", "", "enum ", "", "OrtStatusPtr", "OrtStatus*", "ORTCHAR_T", "char", " *",
		"*").Replace(strings.TrimSpace(t))
	return strings.TrimSpace(t)
}

// ortNotice heads what is taken out of the runtime's header, as its licence asks.
const ortNotice = ` * What graft's kits use of ONNX Runtime's C interface, version %d: names, numbers and the places of functions in
 * its tables, taken from onnxruntime_c_api.h. With that header in place of this one the kits do the same.
 *
 * ONNX Runtime is Copyright (c) Microsoft Corporation, under the MIT License:
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
 * documentation files (the "Software"), to deal in the Software without restriction, including without limitation
 * the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
 * permit persons to whom the Software is furnished to do so, subject to the following conditions: The above
 * copyright notice and this permission notice shall be included in all copies or substantial portions of the
 * Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
 * LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT
 * SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
 * CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
 * IN THE SOFTWARE.
`

// cORT writes graft_ort.h.
func cORT(o *ort) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "// clang-format off\n/* %s\n *\n"+ortNotice+" */\n", generated("onnxruntime_c_api.h"), ortVersion)
	out.WriteString("#ifndef GRAFT_ORT_H_\n#define GRAFT_ORT_H_\n\n#include <stddef.h>\n#include <stdint.h>\n\n#ifdef " +
		"__cplusplus\nextern \"C\" {\n#endif\n\n")
	for _, name := range o.opaque {
		fmt.Fprintf(&out, "typedef struct %s %s;\n", name, name)
	}
	out.WriteString("typedef OrtStatus* OrtStatusPtr;\n")
	for _, t := range o.structs {
		fmt.Fprintf(&out, "typedef struct %s %s;\n", t.name, t.name)
	}
	for _, e := range o.enums {
		fmt.Fprintf(&out, "\ntypedef enum %s {\n", e.name)
		for _, v := range e.values {
			fmt.Fprintf(&out, "  %s = %d,\n", v.name, v.value)
		}
		fmt.Fprintf(&out, "} %s;\n", e.name)
	}
	for _, t := range o.structs {
		fmt.Fprintf(&out, "\nstruct %s {\n", t.name)
		passed := 0
		for i, s := range append(slices.Clone(t.slots), slot{data: "end"}) {
			if s.function == nil && s.data == "" {
				passed++
				continue
			}
			if passed > 0 {
				fmt.Fprintf(&out, "  void* other_%d[%d];\n", i-passed, passed)
				passed = 0
			}
			switch {
			case s.function != nil:
				fmt.Fprintf(&out, "  %s;\n", s.function.declare())
			case s.data != "end":
				fmt.Fprintf(&out, "  %s;\n", s.data)
			}
		}
		out.WriteString("};\n")
	}
	out.WriteString("\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* GRAFT_ORT_H_ */\n")
	return []byte(out.String())
}
