package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestORTLayout: with graft_ort.h every table has the size and the places that it has with the runtime's own header.
func TestORTLayout(t *testing.T) {
	text := must.Value(ortHeaders())(t)
	o := must.Value(parseORT(text))(t)
	var body strings.Builder
	for _, table := range o.structs {
		for _, s := range table.slots {
			if s.function != nil {
				body.WriteString("P(" + table.name + ", " + s.function.name + ")\n")
			}
		}
	}
	for _, e := range o.enums {
		for _, v := range e.values {
			body.WriteString("V(" + v.name + ")\n")
		}
	}
	dir := must.Value(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output())(t)
	printed := func(header, include string) string {
		folder := t.TempDir()
		source := filepath.Join(folder, "places.c")
		program := "#include <stddef.h>\n#include <stdio.h>\n#include \"" + header + "\"\n" +
			"#define P(t, f) printf(\"%s.%s %zu\\n\", #t, #f, offsetof(struct t, f));\n#define V(v) printf(\"%s %d\\n\", #v, " +
			"(int)v);\n" +
			"int main(void) {\nprintf(\"%zu\\n\", sizeof(struct OrtCustomOp));\n" + body.String() + "return 0;\n}\n"
		must.Succeed(t, os.WriteFile(source, []byte(program), 0o644))
		if out, err := exec.Command("cc", "-I", include, source, "-o",
			filepath.Join(folder, "places")).CombinedOutput(); err != nil {
			t.Fatalf("cc with %s: %v\n%s", header, err, out)
		}
		out := must.Value(exec.Command(filepath.Join(folder, "places")).Output())(t)
		return string(out)
	}
	own, theirs := printed("graft_ort.h", ".."), printed("onnxruntime_c_api.h", strings.TrimSpace(string(dir)))
	if own != theirs || strings.Count(own, "\n") < 100 {
		t.Errorf("found\n%s, needed as in ONNX Runtime's header\n%s", own, theirs)
	}
}
