package arena_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/internal/arena"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/given"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// sharing is a Patcher of which every session shares an arena where it may.
func sharing(r session.Request) (*session.Patch, error) {
	p, err := orttest.Negate(r)
	if p != nil {
		p.ShareArena = true
	}
	return p, err
}

// statistic is a number that ONNX Runtime tells of a session's arena.
func statistic(t testing.TB, s *session.Session, name string) int {
	t.Helper()
	handle := must.Value(arena.Of(library).Allocator(s.Native()))(t)
	defer library.Call(slot.ReleaseAllocator, handle)
	var pairs uintptr
	must.Succeed(t, library.Try("AllocatorGetStats", slot.AllocatorGetStats, handle,
		uintptr(unsafe.Pointer(&pairs))))
	defer library.Call(slot.ReleaseKeyValuePairs, pairs)
	n := must.Value(strconv.Atoi(library.Pair(pairs, name)))(t)
	return n
}

func shared(limit uintptr) bool { return limit >= arena.FirstTag && limit < arena.FirstTag<<1 }

// noArenas: every test leaves the environment as it was.
func noArenas(t testing.TB) {
	t.Helper()
	if limit, free := arena.Of(library).Registered(must.Value(library.Environment())(t)); limit != 0 || !free {
		t.Errorf("an arena of limit %d is registered, something else %v; needed nothing", limit, !free)
	}
	if n, theirs, off := arena.Of(library).State(); n > 0 || theirs || off {
		t.Errorf("%d arenas, the program's own %v, off %v; needed none", n, theirs, off)
	}
}

// TestArenaIsShared: whose arena a session gets, by what the program said. Answers are the same.
func TestArenaIsShared(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := orttest.Marshal(t, orttest.Unary("Relu"))
	for _, c := range []struct {
		name    string
		options session.Options
		patcher session.Patcher
		want    func(limit uintptr) bool
	}{
		{"asked for", session.Options{}, sharing, shared},
		{"not asked for", session.Options{}, orttest.Negate, func(limit uintptr) bool { return !shared(limit) }},
		{"no arena", session.Options{NoArena: true}, sharing, func(limit uintptr) bool { return limit == 0 }},
		{"the program's entry says no", session.Options{Config: map[string]string{arena.ConfigEnvAllocators: "0"}}, sharing,
			func(limit uintptr) bool { return !shared(limit) }},
		{"the program's entry says yes, and nothing is registered",
			session.Options{Config: map[string]string{arena.ConfigEnvAllocators: "1"}}, sharing,
			func(limit uintptr) bool { return !shared(limit) }},
	} {
		c.options.Patcher = c.patcher
		s := orttest.Session(t, relu, c.options)
		orttest.Expect(t, c.name, orttest.Run(t, s, -1, 2), 1, -2)
		if limit := arena.Of(library).Limit(s.Native()); !c.want(limit) {
			t.Errorf("%s: the session's arena has limit %d, shared: %v", c.name, limit, shared(limit))
		}
		s.Close()
	}
}

// TestArenaOfOptions: options that a program makes while the hook is installed say whether there is an arena; those
// that were made before may say anything.
func TestArenaOfOptions(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	r := orttest.NewRaw(t)
	before := r.Options()
	install(t, hook.Hook{Patcher: sharing, Strict: true})
	disabled := func(options uintptr) uintptr {
		must.Succeed(t, library.Try("DisableCpuMemArena", slot.DisableCpuMemArena, options))
		return options
	}
	enabled := func(options uintptr) uintptr {
		must.Succeed(t, library.Try("EnableCpuMemArena", slot.EnableCpuMemArena, options))
		return options
	}
	clone := func(options uintptr) uintptr {
		out := r.Word()
		must.Succeed(t, library.Try("CloneSessionOptions", slot.CloneSessionOptions, options,
			uintptr(unsafe.Pointer(out))))
		t.Cleanup(func() { library.Call(slot.ReleaseSessionOptions, *out) })
		return *out
	}
	foreign := r.Options()
	given.To(library).Add(foreign, ort.Appended{Name: "OpenVINOExecutionProvider"})
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	for _, c := range []struct {
		name    string
		options uintptr
		want    bool
	}{
		{"none", 0, true},
		{"made since", r.Options(), true},
		{"a clone", clone(r.Options()), true},
		{"made before", before, false},
		{"a clone of those made before", clone(before), false},
		{"without an arena", disabled(r.Options()), false},
		{"a clone without an arena", clone(disabled(r.Options())), false},
		{"with an arena again", enabled(disabled(r.Options())), true},
		{"with a provider", foreign, false},
	} {
		s := must.Value(r.Session(slot.CreateSessionFromArray, at, size, c.options))(t)
		orttest.Expect(t, c.name, orttest.Run(t, s, -1, 2), 1, -2)
		if limit := arena.Of(library).Limit(s.Native()); shared(limit) != c.want {
			t.Errorf("options %s: the arena has limit %d, shared %v, want %v", c.name, limit, shared(limit), c.want)
		}
		s.Close()
	}
}

// TestArenasOfManySessions: so many share one, the next have another; with the last session each goes.
func TestArenasOfManySessions(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := orttest.Marshal(t, orttest.Unary("Relu"))
	var list []*session.Session
	of := map[uintptr]int{}
	for range 2*arena.SharedBy + 1 {
		s := orttest.Session(t, relu, session.Options{IntraOpThreads: 1, Patcher: sharing})
		list = append(list, s)
		of[arena.Of(library).Limit(s.Native())]++
	}
	var counts []int
	for limit, n := range of {
		if !shared(limit) {
			t.Errorf("an arena has limit %d", limit)
		}
		counts = append(counts, n)
	}
	slices.Sort(counts)
	must.Equal(t, counts, []int{1, arena.SharedBy, arena.SharedBy})
	for i, s := range list {
		orttest.Expect(t, "session "+strconv.Itoa(i), orttest.Run(t, s, -1, 2), 1, -2)
		s.Close()
	}
}

// TestArenaHoldsWhatRunsAtOnce: sessions that run in turn take no more than one of them.
func TestArenaHoldsWhatRunsAtOnce(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := orttest.Marshal(t, orttest.Unary("Relu"))
	x := make([]float32, 1<<20)
	one := 0
	for i := range arena.SharedBy {
		s := orttest.Session(t, relu, session.Options{IntraOpThreads: 1, Patcher: sharing})
		orttest.Run(t, s, x...)
		if held := statistic(t, s, "TotalAllocated"); i == 0 {
			one = held
		} else if held != one {
			t.Errorf("%d sessions hold %d bytes, one %d", i+1, held, one)
		}
	}
	if one < 4*len(x) {
		t.Errorf("a session holds %d bytes for a result of %d", one, 4*len(x))
	}
}

// TestArenaShrinks: what a session that is no more took goes back, while another has the arena.
func TestArenaShrinks(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := orttest.Marshal(t, orttest.Unary("Relu"))
	large, stays := orttest.Session(t, relu, session.Options{Patcher: sharing}),
		orttest.Session(t, relu, session.Options{Patcher: sharing})
	orttest.Run(t, stays, -1)
	orttest.Run(t, large, make([]float32, 16<<20)...)
	before := statistic(t, stays, "TotalAllocated")
	large.Close()
	after := statistic(t, stays, "TotalAllocated")
	if before < 64<<20 || after > 8<<20 {
		t.Errorf("the arena holds %d bytes after a large run, and %d when its session is no more", before, after)
	}
	orttest.Expect(t, "the other", orttest.Run(t, stays, -1, 2), 1, -2)
}

// TestResultsOutliveArena: a result stays where it is after the last session of its arena.
func TestResultsOutliveArena(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")), session.Options{Patcher: sharing})
	x := make([]float32, 1<<16)
	for i := range x {
		x[i] = float32(i)
	}
	in := must.Value(ort.NewTensor(library, []int64{int64(len(x))}, x))(t)
	defer in.Close()
	results := must.Value(s.Run(context.Background(), map[string]*ort.Value{"x": in}))(t)
	defer ort.CloseAll(results)
	s.Close()
	noArenas(t)
	y := must.Value(ort.Data[float32](results[0]))(t)
	for i := range x {
		if y[i] != -x[i] {
			t.Fatalf("y[%d] is %v", i, y[i])
		}
	}
}

// allocator is one that a program registers.
func allocator(r *orttest.Raw) uintptr {
	var own uintptr
	must.Succeed(r, library.Try("GetAllocatorWithDefaultOptions", slot.GetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&own))))
	info := must.Value(library.Memory("Cpu", 0))(r)
	call := func(member int, arguments ...uintptr) uintptr {
		result, _, _ := purego.SyscallN(cmem.LoadWord(own, member), append([]uintptr{own}, arguments...)...)
		return result
	}
	words := make([]uintptr, 8)
	words[0] = ort.APIVersion
	words[1] = purego.NewCallback(func(_, size uintptr) uintptr { return call(1, size) })
	words[2] = purego.NewCallback(func(_, p uintptr) uintptr { call(2, p); return 0 })
	words[3] = purego.NewCallback(func(uintptr) uintptr { return info.Native() })
	r.Pins = append(r.Pins, words)
	return orttest.Address(words)
}

// TestArenaOfProgram: what a program registers in its environment stays there, whenever it does, and each of its
// calls has the result that it has without these arenas.
func TestArenaOfProgram(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	const limit = 1 << 40 // of the program's own arena
	r := orttest.NewRaw(t)
	info := must.Value(arena.Of(library).Info())(t)
	defer library.Call(slot.ReleaseMemoryInfo, info)
	own := allocator(r)
	ways := []struct {
		name     string
		register func() error
		limit    uintptr
	}{
		{"an arena", func() error { return arena.Of(library).Register(r.Env, limit) }, limit},
		{"an allocator", func() error { return library.Try("RegisterAllocator", slot.RegisterAllocator, r.Env, own) }, 0},
	}
	// register of the library calls ONNX Runtime's own function: as the program's call it goes by the slot.
	seen := func() error {
		config, keys := r.Word(), []*byte{(*byte)(cmem.Pointer(r.Text("max_mem")))}
		limits := []uintptr{limit}
		if err := library.Try("CreateArenaCfgV2", slot.CreateArenaCfgV2, orttest.Address(keys), orttest.Address(limits), 1,
			uintptr(unsafe.Pointer(config))); err != nil {
			return err
		}
		defer library.Call(slot.ReleaseArenaCfg, *config)
		return library.Try("CreateAndRegisterAllocator", slot.CreateAndRegisterAllocator, r.Env, info, *config)
	}
	unregister := func() error { return library.Try("UnregisterAllocator", slot.UnregisterAllocator, r.Env, info) }
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	make := func() *session.Session {
		s := must.Value(r.Session(slot.CreateSessionFromArray, at, size, 0))(t)
		orttest.Expect(t, "a session", orttest.Run(t, s, -1, 2), 1, -2)
		return s
	}
	for _, way := range ways {
		// Before the hook, which sees nothing of it.
		must.Succeed(t, way.register())
		install(t, hook.Hook{Patcher: sharing, Strict: true})
		s := make()
		if l := arena.Of(library).Limit(s.Native()); shared(l) {
			t.Errorf("%s was registered before: a session has an arena of limit %d", way.name, l)
		}
		if l, free := arena.Of(library).Registered(r.Env); l != way.limit || free {
			t.Errorf("%s was registered before: limit %d, nothing %v; want %d", way.name, l, free, way.limit)
		}
		s.Close()
		must.Succeed(t, unregister(), way.name)

		// While sessions share an arena.
		if way.limit != 0 {
			way.register = seen
		}
		first := make()
		if l := arena.Of(library).Limit(first.Native()); !shared(l) {
			t.Errorf("%s was taken away: a session has an arena of limit %d, none that is shared", way.name, l)
		}
		if err := unregister(); err == nil {
			t.Errorf("a program took away an arena that it has not registered")
		}
		must.Succeed(t, way.register())
		second := make()
		if l := arena.Of(library).Limit(second.Native()); shared(l) {
			t.Errorf("%s was registered: a session has an arena of limit %d", way.name, l)
		}
		if l, free := arena.Of(library).Registered(r.Env); l != way.limit || free {
			t.Errorf("%s was registered: limit %d, nothing %v; want %d", way.name, l, free, way.limit)
		}
		orttest.Expect(t, "a session of an arena that is registered no more", orttest.Run(t, first, -1, 2), 1, -2)
		first.Close()
		second.Close()
		if l, free := arena.Of(library).Registered(r.Env); l != way.limit || free {
			t.Errorf("%s was registered, and sessions came and went: limit %d, nothing %v; want %d", way.name, l, free,
				way.limit)
		}
		must.Succeed(t, unregister(), way.name)
		if err := unregister(); err == nil {
			t.Errorf("%s was taken away twice", way.name)
		}
		must.Succeed(t, hook.Uninstall(library))
	}
}

// TestArenasAtOnce: sessions that come, run and go on many threads.
func TestArenasAtOnce(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := orttest.Marshal(t, orttest.Unary("Relu"))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 12 {
				s, err := session.FromBytes(library, relu, session.Options{IntraOpThreads: 1, Patcher: sharing})
				if err != nil {
					t.Error(err)
					return
				}
				x := make([]float32, 1+1000*i+j)
				x[0] = float32(i)
				must.Equal(t, orttest.Run(t, s, x...)[0], -float32(i))
				s.Close()
			}
		})
	}
	group.Wait()
}

const markEnvironments = "GRAFT_TEST_ENVIRONMENTS"

// TestArenasOfEnvironments: a program that makes and releases environments, also while sessions live, in a process of
// its own.
func TestArenasOfEnvironments(t *testing.T) {
	if os.Getenv(markEnvironments) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestArenasOfEnvironments$", "-test.v")
		child.Env = append(os.Environ(), markEnvironments+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	must.Succeed(t, os.Setenv(ort.EnvTelemetry, "1"))
	install(t, hook.Hook{Patcher: sharing, Strict: true})
	r := &orttest.Raw{TB: t}
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	var limits []uintptr
	for round := range 4 {
		env, out := r.Word(), r.Word()
		must.Succeed(t, library.Try("CreateEnv", slot.CreateEnv, 2, r.Text("program"), uintptr(unsafe.Pointer(env))))
		must.Succeed(t, library.Try("CreateSessionFromArray", slot.CreateSessionFromArray, *env, at, size, 0,
			uintptr(unsafe.Pointer(out))))
		s := must.Value(session.Own(library, *out))(t)
		if round%2 == 1 {
			library.Call(slot.ReleaseEnv, *env) // before the session
		}
		orttest.Expect(t, "a session", orttest.Run(t, s, -1, 2), 1, -2)
		limits = append(limits, arena.Of(library).Limit(s.Native()))
		s.Close()
		if round%2 == 0 {
			library.Call(slot.ReleaseEnv, *env)
		}
	}
	slices.Sort(limits)
	if n := len(slices.Compact(limits)); n != 4 || !shared(limits[0]) {
		t.Errorf("the arenas of four environments have limits %v", limits)
	}
}
