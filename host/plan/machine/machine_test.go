package machine

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/internal/must"
)

// attends is the operator that the tests measure reading with.
var attends = Operator{"flash-decode", "CachedAttention"}

// load opens plugins of those just built.
func load(t *testing.T, names ...string) []*plugin.Plugin {
	t.Helper()
	var list []*plugin.Plugin
	for _, name := range names {
		folder := must.Value(filepath.Abs("../../../build/plugins/" + name))(t)
		p, err := plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true})
		if err != nil {
			t.Fatalf("%v: run make plugins", err)
		}
		list = append(list, p)
	}
	return list
}

func TestRooflineIsMeasuredOnce(t *testing.T) {
	plugins := load(t, attends.Plugin, "packed-linear")
	read1 := probe
	probe = func() float64 { return 0 } // on a busy machine it may outdo what was measured a moment ago
	defer func() { probe = read1 }()
	var logged bytes.Buffer
	o := Options{Attention: attends, Folder: filepath.Join(t.TempDir(), "cache"),
		Log: slog.New(slog.NewTextHandler(&logged, nil))}
	m := must.Value(Roofline(plugins, o))(t)
	t.Logf("%+v", m)
	if m.Bandwidth < 1e8 || m.FLOPS < 1e8 || m.LastCacheBandwidth < m.Bandwidth && m.LastCacheBytes > 0 {
		t.Errorf("measured %+v", m)
	}
	again, err := Roofline(plugins, o)
	if err != nil || again != m {
		t.Errorf("stored %+v, %v; measured was %+v", again, err, m)
	}
	path := filepath.Join(o.Folder, fileName)
	whole := must.Value(os.ReadFile(path))(t)
	for _, c := range []struct{ what, text, log string }{
		{"truncated", string(whole[:len(whole)/2]), "is no record of graft's"},
		{"of another machine", strings.Replace(string(whole), `"cores": `, `"cores": 9`, 1), ""},
		{"of another build", strings.Replace(string(whole), plugins[0].SHA256, "00", 1), ""},
		{"of what no machine has", strings.Replace(string(whole), `"flops": `, `"flops": 1e300, "x": `, 1), "unknown field"},
		{"of nothing", `{"schema_version": 2, "rooflines": [{}]}`, ""},
		{"of an older graft", `{"schema_version": 1, "rooflines": []}`, "found schema_version 1"},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o644))
		logged.Reset()
		m, err := Roofline(plugins, o)
		if err != nil || !m.plausible() {
			t.Errorf("%s: %+v, %v", c.what, m, err)
		}
		if c.log == "" && logged.Len() > 0 || !strings.Contains(logged.String(), c.log) {
			t.Errorf("%s: the log says %q, want %q", c.what, logged.String(), c.log)
		}
		if _, stored, err := read(o.Folder); err != nil || stored.Rooflines[0].Figures != m {
			t.Errorf("%s: stored %+v, %v", c.what, stored, err)
		}
	}
	// A folder that cannot be written is no reason to fail.
	logged.Reset()
	o.Folder = filepath.Join(path, "below")
	if m, err := Roofline(plugins, o); err != nil || !m.plausible() ||
		!strings.Contains(logged.String(), "cannot store what was measured") {
		t.Errorf("without a folder: %+v, %v, the log says %q", m, err, logged.String())
	}
}

// TestRooflineHolds: figures are measured again when they are old, when the machine was busy meanwhile, and when memory
// is read much faster than they say.
func TestRooflineHolds(t *testing.T) {
	plugins := load(t, attends.Plugin, "packed-linear")
	read1 := probe
	defer func() { probe = read1 }()
	o := Options{Attention: attends, Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	id := This(plugins, 0, attends.Plugin, "packed-linear")
	old := Figures{Bandwidth: 12e9, LastCacheBandwidth: 24e9, LastCacheBytes: 1 << 20, FLOPS: 99e9}
	for _, c := range []struct {
		what  string
		age   time.Duration
		share float64
		probe float64
		holds bool
	}{
		{"new", time.Minute, 1, 0, true},
		{"of three weeks", 21 * 24 * time.Hour, 0.9, 30e9, true},
		{"of two months", 60 * 24 * time.Hour, 1, 0, false},
		{"of a busy machine, new", time.Minute, 0.4, 0, true},
		{"of a busy machine, an hour old", time.Hour, 0.4, 0, false},
		{"outdone by memory", time.Minute, 1, 40e9, false},
	} {
		probe = func() float64 { return c.probe }
		date := time.Now().Add(-c.age).UTC().Format(time.RFC3339)
		path := filepath.Join(o.Folder, fileName)
		must.Succeed(t, WriteRecord(path,
			file{fileVersion, []entry{{ID: id, Figures: old, Date: date, CoreShare: c.share}}}))
		r, ok := Recorded(o.Folder, 0)
		if known := c.holds || c.probe > 0; ok != known || ok && (r.Figures != old || r.CoreShare != c.share) {
			t.Errorf("%s: recorded is %+v, %v", c.what, r, ok)
		}
		got, err := Roofline(plugins, o)
		must.Succeed(t, err, c.what, got)
		must.Equal(t, got == old, c.holds, c.what, got)
		if r, ok := Recorded(o.Folder, 0); !c.holds && (!ok || r.Figures != got || r.CoreShare <= 0) {
			t.Errorf("%s: recorded after it is %+v, %v", c.what, r, ok)
		}
	}
}

// TestProbe reads memory.
func TestProbe(t *testing.T) {
	if got := probe(); got < 1e8 || got > 1e13 {
		t.Errorf("%v bytes a second", got)
	}
}

func TestRooflineWithoutPlugins(t *testing.T) {
	m, err := Roofline(load(t, attends.Plugin), Options{Attention: attends, Folder: t.TempDir()})
	if m != (Figures{}) || err == nil ||
		err.Error() != "the machine is estimated, not measured: no plugin that provides linear-panels/1 is loaded, "+
			"found flash-decode; see graft plugin list" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestDiffers(t *testing.T) {
	id := func(change func(*ID)) ID {
		x := ID{CPU: "a", Cores: 2, Threads: 2, Plugins: map[string]string{"p": "1", "q": "2"}}
		change(&x)
		return x
	}
	same := id(func(*ID) {})
	for want, x := range map[string]ID{
		"":                              same,
		"of another machine (b, 2":      id(func(x *ID) { x.CPU = "b" }),
		"of another machine (a, 3":      id(func(x *ID) { x.Cores = 3 }),
		"measured with 1 threads, 2":    id(func(x *ID) { x.Threads = 1 }),
		"without the plugin q":          id(func(x *ID) { delete(x.Plugins, "q") }),
		"another build of the plugin p": id(func(x *ID) { x.Plugins["p"] = "0" }),
	} {
		if got := same.Differs(x); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", x, got, want)
		}
	}
	more := id(func(x *ID) { x.Plugins["r"] = "3" })
	must.Equal(t, same.Differs(more), "")
	this := This(load(t, attends.Plugin), 0, attends.Plugin, "packed-linear")
	if len(this.Plugins) != 1 || len(this.Plugins[attends.Plugin]) != 64 || this.Threads != this.Cores || this.CPU == "" {
		t.Errorf("this machine is %+v", this)
	}
}

func TestNamesOfProcessors(t *testing.T) {
	for info, want := range map[string]string{
		"processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some CPU @ 2 GHz\nstepping\t: 1\n\nprocessor\t: 1\nmodel name\t: " +
			"Other\n": "Some CPU @ 2 GHz, model 17, stepping 1",
		"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n": "CPU implementer 0x41, CPU part 0xd0c",
	} {
		must.Equal(t, cpuOf(info), want)
	}
	if cpuOf("") == "" || cpu() == "" {
		t.Error("a processor without a name")
	}
}

func TestLastCache(t *testing.T) {
	for _, c := range []struct {
		levels map[string]string
		want   int64
	}{
		{nil, 0}, {map[string]string{"1": "32K", "2": "1024K"}, 0}, {map[string]string{"2": "1M", "3": "32768K"}, 32 << 20},
		{map[string]string{"3": "8M", "4": "1G"}, 1 << 30}, {map[string]string{"3": "some"}, 0},
		{map[string]string{"x": "8M"}, 0},
	} {
		folder := t.TempDir()
		for level, size := range c.levels {
			index := filepath.Join(folder, "index"+level)
			must.Succeed(t, os.Mkdir(index, 0o755))
			for name, text := range map[string]string{"level": level, "size": size} {
				must.Succeed(t, os.WriteFile(filepath.Join(index, name), []byte(text+"\n"), 0o644))
			}
		}
		if got := lastCache(folder); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.levels, got, c.want)
		}
	}
}
