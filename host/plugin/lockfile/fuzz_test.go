package lockfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// FuzzParse: whatever a file holds, it is refused in one line, or it is a lock that is written and read as the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(written))
	f.Add([]byte("schema_version: 1\nplugins: []\n"))
	f.Add([]byte("schema_version: 1\nplugins: &a [*a]\n"))
	path := filepath.Join(f.TempDir(), FileName)
	f.Fuzz(func(t *testing.T, data []byte) {
		var (
			lock *File
			err  error
		)
		must.CostLittle(t, len(data), func() { lock, err = Parse(path, data) })
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		for range 2 {
			must.Succeed(t, lock.Write())
			first, err := os.ReadFile(path)
			must.Succeed(t, err)
			if lock, err = Read(path); err != nil {
				t.Fatal(err)
			}
			must.Succeed(t, lock.Write())
			if second, err := os.ReadFile(path); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%q, then %q, %v", first, second, err)
			}
		}
	})
}
