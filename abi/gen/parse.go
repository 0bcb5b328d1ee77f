package main

import (
	"fmt"
	"regexp"
	"strings"
)

// header is what one header of the ABI declares.
type header struct {
	constants []constant
	structs   []*structure
	byName    map[string]*structure
	functions []function
}

// constant is one macro with a value.
type constant struct {
	name    string // GRAFT_...
	value   string // a Go and C literal
	comment string // of its line, else empty
	section string // the comment above the group, on its first member only
}

// structure is one struct with its layout on a 64-bit machine.
type structure struct {
	name    string // graft_...
	comment string
	members []member
	size    int
	align   int
}

type member struct {
	name     string
	ctype    string // without the name: "const graft_tensor* const*"; "function" for function pointers
	declared string // the whole declaration, for documentation
	comment  string
	offset   int
}

var (
	definePattern   = regexp.MustCompile(`^#define (GRAFT_[A-Z0-9_]+)\s+(.+)$`)
	structPattern   = regexp.MustCompile(`^typedef struct (graft_[a-z0-9_]+) \{$`)
	memberPattern   = regexp.MustCompile(`^((?:const )?(?:struct )?[a-z0-9_]+(?:\s*\*(?:\s*const\b)?)*)\s*([a-z0-9_]+);$`)
	functionPattern = regexp.MustCompile(`^[a-z0-9_ *]+\(\*([a-z0-9_]+)\)\(.*\);$`)
	numberPattern   = regexp.MustCompile(`^\(?-?[0-9]+\)?$`)
	stringPattern   = regexp.MustCompile(`^"[^"\\]*"$`)
	lineComment     = regexp.MustCompile(`\s*/\*\s*(.*?)\s*\*/\s*$`)
)

// parse reads the header. Errors name the line.
func parse(source string) (*header, error) {
	h := &header{byName: map[string]*structure{}}
	lines := strings.Split(source, "\n")
	comment, fresh := "", false
	var current *structure
	for i := 0; i < len(lines); i++ {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("line %d: %s", i+1, fmt.Sprintf(format, args...))
		}
		line := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(line, "/*"):
			var text []string
			for {
				text = append(text, strings.TrimSpace(strings.TrimLeft(line, "/* ")))
				if strings.HasSuffix(line, "*/") {
					break
				}
				if i++; i == len(lines) {
					return nil, fail("comment without end")
				}
				line = strings.TrimSpace(lines[i])
			}
			comment, fresh = strings.TrimSpace(strings.TrimSuffix(strings.Join(text, "\n"), "*/")), true
		case line == "":
			comment = ""
		case strings.HasPrefix(line, "#define "):
			c := constant{}
			if m := lineComment.FindStringSubmatch(line); m != nil {
				c.comment, line = m[1], strings.TrimSuffix(line, m[0])
			}
			m := definePattern.FindStringSubmatch(line)
			if m == nil {
				if strings.HasSuffix(line, "_H_") { // the include guard
					continue
				}
				return nil, fail("found %q, needed #define GRAFT_NAME value", line)
			}
			c.name, c.value = m[1], strings.Trim(m[2], "()")
			if !numberPattern.MatchString(m[2]) && !stringPattern.MatchString(m[2]) {
				return nil, fail("found value %s, needed one number or string", m[2])
			}
			if fresh {
				c.section = comment
			}
			fresh = false
			h.constants = append(h.constants, c)
		case strings.HasPrefix(line, "static inline "):
			for !strings.HasSuffix(line, "}") {
				if i++; i == len(lines) {
					return nil, fail("function without end")
				}
				line += " " + strings.TrimSpace(lines[i])
			}
			f, err := h.parseFunction(line)
			if err != nil {
				return nil, fail("%v", err)
			}
			f.comment, comment = comment, ""
			h.functions = append(h.functions, f)
		case strings.HasPrefix(line, "typedef struct"):
			m := structPattern.FindStringSubmatch(line)
			if m == nil || current != nil {
				return nil, fail("found %q, needed typedef struct graft_name {", line)
			}
			current = &structure{name: m[1], comment: comment}
			comment = ""
		case current != nil && strings.HasPrefix(line, "}"):
			if line != "} "+current.name+";" {
				return nil, fail("found %q, needed } %s;", line, current.name)
			}
			if err := h.place(current); err != nil {
				return nil, fail("%v", err)
			}
			h.structs = append(h.structs, current)
			h.byName[current.name] = current
			current, comment = nil, ""
		case current != nil:
			for !strings.Contains(line, ";") { // a declaration over several lines
				if i++; i == len(lines) {
					return nil, fail("declaration without end")
				}
				line += " " + strings.TrimSpace(lines[i])
			}
			m, err := parseMember(line)
			if err != nil {
				return nil, fail("%v", err)
			}
			if comment != "" {
				m.comment = comment
			}
			comment = ""
			current.members = append(current.members, m)
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "extern"), line == "}",
			line == "const graft_plugin* graft_plugin_v1(void);":
			comment = ""
		default:
			return nil, fail("found %q, which the mirror cannot show", line)
		}
	}
	return h, nil
}

func parseMember(line string) (member, error) {
	var m member
	if c := lineComment.FindStringSubmatch(line); c != nil {
		m.comment, line = c[1], strings.TrimSuffix(line, c[0])
	}
	m.declared = line
	if f := functionPattern.FindStringSubmatch(line); f != nil {
		m.name, m.ctype = f[1], "function"
		return m, nil
	}
	f := memberPattern.FindStringSubmatch(line)
	if f == nil {
		return m, fmt.Errorf("found member %q, needed a fixed-width type, a pointer or a function pointer", line)
	}
	m.ctype, m.name = strings.ReplaceAll(f[1], "struct ", ""), f[2]
	return m, nil
}

// place computes offsets, size and alignment, and refuses padding that the struct does not declare.
func (h *header) place(s *structure) error {
	offset := 0
	s.align = 1
	for i := range s.members {
		m := &s.members[i]
		size, align, err := h.sizeOf(m.ctype)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", s.name, m.name, err)
		}
		if offset%align != 0 {
			return fmt.Errorf("%s.%s: found offset %d, needed a multiple of %d; declare the padding", s.name, m.name, offset,
				align)
		}
		m.offset = offset
		offset += size
		s.align = max(s.align, align)
	}
	if offset%s.align != 0 {
		return fmt.Errorf("%s: found size %d, needed a multiple of %d; declare the padding", s.name, offset, s.align)
	}
	s.size = offset
	return nil
}

var scalars = map[string]struct {
	size   int
	goType string
}{
	"uint8_t": {1, "uint8"}, "uint16_t": {2, "uint16"}, "int32_t": {4, "int32"}, "uint32_t": {4, "uint32"},
	"int64_t": {8, "int64"}, "uint64_t": {8, "uint64"}, "double": {8, "float64"},
}

func (h *header) sizeOf(ctype string) (size, align int, err error) {
	if ctype == "function" || strings.Contains(ctype, "*") {
		return 8, 8, nil
	}
	if s, ok := scalars[ctype]; ok {
		return s.size, s.size, nil
	}
	if s, ok := h.byName[ctype]; ok {
		return s.size, s.align, nil
	}
	return 0, 0, fmt.Errorf("found type %s, needed a fixed-width integer, double, pointer or struct of this header", ctype)
}
