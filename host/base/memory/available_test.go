package memory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func TestAvailable(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal:       24000000 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is said", nil, 0},
		{"the system alone", map[string]string{"proc/meminfo": meminfo}, 8 * gib},
		{"a group without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/a/b/memory.max": "max\n",
			"sys/a/b/memory.current": "5\n",
		}, 8 * gib},
		{"a group with one", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/a/b/memory.max": "4294967296\n",
			"sys/a/b/memory.current": "3221225472\n",
			"sys/a/b/memory.stat":    "anon 5\ninactive_file 536870912\n",
		}, gib + gib/2},
		{"the group above has less", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/a/b/memory.max": "4294967296\n",
			"sys/a/b/memory.current": "0\n",
			"sys/a/memory.max":       "2147483648\n", "sys/a/memory.current": "1073741824\n",
		}, gib},
		{"more than the system has", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/memory.max": "99999999999\n",
			"sys/memory.current": "0\n",
		}, 8 * gib},
		{"over the limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/memory.max": "10\n", "sys/memory.current": "20\n",
		}, 1},
		{"an older kernel's groups", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a\n"},
			8 * gib},
	} {
		dir := t.TempDir()
		for path, content := range c.files {
			must.Succeed(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
			must.Succeed(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644))
		}
		must.Equal(t, available(filepath.Join(dir, "proc"), filepath.Join(dir, "sys")), c.want, c.name)
	}
	if n := Available(); n < 0 {
		t.Errorf("%d bytes are available", n)
	}
}
