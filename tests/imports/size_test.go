package imports

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// most is by how many bytes a program, without symbols, may grow that enables graft and does nothing else with it.
const most = 8 << 20

// TestEnablingIsLean: generation, servers and tables of languages are in programs that use them. What lies in
// variables, functions that sync.OnceValue takes among it, is in all of them.
func TestEnablingIsLean(t *testing.T) {
	size := map[string]int64{}
	for _, name := range []string{"plain", "enables"} {
		program := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program,
			"./testdata/"+name).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info := must.Value(os.Stat(program))(t)
		size[name] = info.Size()
	}
	t.Logf("without graft %d bytes, with it %d: %d more", size["plain"], size["enables"], size["enables"]-size["plain"])
	if grown := size["enables"] - size["plain"]; grown > most {
		t.Errorf("enabling graft adds %d bytes to a program, needed at most %d: go build -ldflags=-dumpdep says what "+
			"holds what", grown, most)
	}
	deps := must.Value(exec.Command("go", "list", "-deps", "./testdata/enables").Output())(t)
	for _, pkg := range strings.Fields(string(deps)) {
		if pkg == "net/http" || strings.HasPrefix(pkg, "google.golang.org/grpc") ||
			strings.HasPrefix(pkg, "golang.org/x/text/language") {
			t.Errorf("a program that only enables graft links %s", pkg)
		}
	}
}
