package procmaps

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	ms, err := parse(strings.NewReader(
		`7f0000000000-7f0000001000 r-xp 00000000 fe:00 12                         /opt/a b/libonnxruntime.so.1
7f0000002000-7f0000003000 r--p 00001000 fe:00 12                         /opt/a b/libonnxruntime.so.1 (deleted)
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
7f0000006000-7f0000007000 r-xp 00000000 fe:00 13                         /lib/libc.so.6
`))
	if err != nil || len(ms) != 4 {
		t.Fatalf("%v, %v", ms, err)
	}
	if m, ok := ms.At(0x7f0000002abc); !ok || m.Path != "/opt/a b/libonnxruntime.so.1" || m.executable() {
		t.Errorf("got %+v, %v", m, ok)
	}
	if _, ok := ms.At(0x7f0000001000); ok {
		t.Error("an address between mappings is found")
	}
	if libraries := Libraries(ms); len(libraries) != 2 || libraries[0] != "/opt/a b/libonnxruntime.so.1" {
		t.Errorf("libraries %v", libraries)
	}
	for _, bad := range []string{"nonsense", "zz-10 r-xp 0 0 0 /x"} {
		if _, err := parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
