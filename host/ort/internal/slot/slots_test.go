package slot

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestSlots compares every index in slot.go with the order of functions in ONNX Runtime's C
// header, as onnxruntime_go ships it.
func TestSlots(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	must.Succeed(t, err, "finding the header")
	text := must.Value(os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "onnxruntime_c_api.h")))(t)
	header := string(text)
	if want := "#define ORT_API_VERSION " + strconv.Itoa(APIVersion) + "\n"; !strings.Contains(header, want) {
		t.Errorf("the header does not have %q", want)
	}
	tables := map[string]map[string]int{
		"Slot":        headerTable(t, header, "OrtApi"),
		"EditorSlot":  headerTable(t, header, "OrtModelEditorApi"),
		"CompileSlot": headerTable(t, header, "OrtCompileApi"),
	}
	file := must.Value(parser.ParseFile(token.NewFileSet(), "slot.go", nil, 0))(t)
	checked := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil {
			return true
		}
		name, of := spec.Names[0].Name, spec.Type.(*ast.Ident).Name
		found, _ := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
		function := strings.TrimPrefix(name, strings.TrimSuffix(of, "Slot"))
		if of == "CompileSlot" {
			function = name
		}
		if want, ok := tables[of][function]; !ok || found != want {
			t.Errorf("%s is %d, the header has %s at %d (found: %v)", name, found, function, want, ok)
		}
		checked++
		return true
	})
	if checked < 60 {
		t.Errorf("only %d slots were checked", checked)
	}
}

var (
	comments   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	directives = regexp.MustCompile(`(?m)^#.*$`)
	member     = regexp.MustCompile(
		`ORT_API2_STATUS\(\s*(\w+)|ORT_CLASS_RELEASE\((\w+)|(?s:ORT_API_T\(.*?,\s*(\w+)\s*[,)])|\(ORT_API_CALL\s*\*\s*(\w+)\)`)
)

// headerTable maps the functions of a struct of function pointers to their indices.
func headerTable(t *testing.T, header, name string) map[string]int {
	t.Helper()
	header = directives.ReplaceAllString(comments.ReplaceAllString(header, ""), "")
	_, body, ok := strings.Cut(header, "struct "+name+" {")
	if !ok {
		t.Fatalf("the header has no struct %s", name)
	}
	body, _, _ = strings.Cut(body, "\n};")
	// Stands in place of the functions in a minimal build.
	body = strings.ReplaceAll(body, "const bool not_defined_in_this_build;", "")
	table := map[string]int{}
	for i, m := range strings.Split(strings.TrimSpace(body), ";") {
		if strings.TrimSpace(m) == "" {
			continue
		}
		found := member.FindStringSubmatch(m)
		if found == nil {
			t.Fatalf("%s: no function in %q", name, m)
		}
		function := found[1] + found[3] + found[4]
		if found[2] != "" {
			function = "Release" + found[2]
		}
		table[function] = i
	}
	return table
}
