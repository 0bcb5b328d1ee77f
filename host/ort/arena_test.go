package ort

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

	"github.com/opgraft/graft/internal/must"
)

// sharing is a Patcher of which every session shares an arena where it may.
func sharing(r Request) (*Patch, error) {
	p, err := negate(r)
	if p != nil {
		p.ShareArena = true
	}
	return p, err
}

// statistic is a number that ONNX Runtime tells of a session's arena.
func statistic(t testing.TB, s *Session, name string) int {
	t.Helper()
	handle := must.Value(s.library.allocatorOf(s.native))(t)
	defer s.library.call(slotReleaseAllocator, handle)
	var pairs uintptr
	must.Succeed(t, s.library.try("AllocatorGetStats", slotAllocatorGetStats, handle,
		uintptr(unsafe.Pointer(&pairs))))
	defer s.library.call(slotReleaseKeyValuePairs, pairs)
	n := must.Value(strconv.Atoi(s.library.pair(pairs, name)))(t)
	return n
}

func shared(limit uintptr) bool { return limit >= firstTag && limit < firstTag<<1 }

// noArenas: every test leaves the environment as it was.
func noArenas(t testing.TB) {
	t.Helper()
	if limit, free := library.registered(must.Value(library.env())(t)); limit != 0 || !free {
		t.Errorf("an arena of limit %d is registered, something else %v; needed nothing", limit, !free)
	}
	all := &library.hook.arenas
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.list) > 0 || all.theirs || all.off {
		t.Errorf("%d arenas, the program's own %v, off %v; needed none", len(all.list), all.theirs, all.off)
	}
}

// TestArenaIsShared: whose arena a session gets, by what the program said. Answers are the same.
func TestArenaIsShared(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := marshal(t, unary("Relu"))
	for _, c := range []struct {
		name    string
		options SessionOptions
		patcher Patcher
		want    func(limit uintptr) bool
	}{
		{"asked for", SessionOptions{}, sharing, shared},
		{"not asked for", SessionOptions{}, negate, func(limit uintptr) bool { return !shared(limit) }},
		{"no arena", SessionOptions{NoArena: true}, sharing, func(limit uintptr) bool { return limit == 0 }},
		{"the program's entry says no", SessionOptions{Config: map[string]string{configEnvAllocators: "0"}}, sharing,
			func(limit uintptr) bool { return !shared(limit) }},
		{"the program's entry says yes, and nothing is registered",
			SessionOptions{Config: map[string]string{configEnvAllocators: "1"}}, sharing,
			func(limit uintptr) bool { return !shared(limit) }},
	} {
		c.options.Patcher = c.patcher
		s := session(t, relu, c.options)
		expect(t, c.name, run(t, s, -1, 2), 1, -2)
		if limit := library.limitOf(s.native); !c.want(limit) {
			t.Errorf("%s: the session's arena has limit %d, shared: %v", c.name, limit, shared(limit))
		}
		s.Close()
	}
}

// TestArenaOfOptions: options that a program makes while the hook is installed say whether there is an arena; those
// that were made before may say anything.
func TestArenaOfOptions(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	r := newRaw(t)
	before := r.options()
	install(t, Hook{Patcher: sharing, Strict: true})
	disabled := func(options uintptr) uintptr {
		must.Succeed(t, library.try("DisableCpuMemArena", slotDisableCpuMemArena, options))
		return options
	}
	enabled := func(options uintptr) uintptr {
		must.Succeed(t, library.try("EnableCpuMemArena", slotEnableCpuMemArena, options))
		return options
	}
	clone := func(options uintptr) uintptr {
		out := r.word()
		must.Succeed(t, library.try("CloneSessionOptions", slotCloneSessionOptions, options,
			uintptr(unsafe.Pointer(out))))
		t.Cleanup(func() { library.call(slotReleaseSessionOptions, *out) })
		return *out
	}
	foreign := r.options()
	library.hook.appended.add(foreign, Appended{Name: "OpenVINOExecutionProvider"})
	at, size := r.bytes(marshal(t, unary("Relu")))
	for _, c := range []struct {
		name    string
		options uintptr
		want    bool
	}{
		{"none", 0, true},
		{"made since", r.options(), true},
		{"a clone", clone(r.options()), true},
		{"made before", before, false},
		{"a clone of those made before", clone(before), false},
		{"without an arena", disabled(r.options()), false},
		{"a clone without an arena", clone(disabled(r.options())), false},
		{"with an arena again", enabled(disabled(r.options())), true},
		{"with a provider", foreign, false},
	} {
		s := must.Value(r.session(slotCreateSessionFromArray, at, size, c.options))(t)
		expect(t, c.name, run(t, s, -1, 2), 1, -2)
		if limit := library.limitOf(s.native); shared(limit) != c.want {
			t.Errorf("options %s: the arena has limit %d, shared %v, want %v", c.name, limit, shared(limit), c.want)
		}
		s.Close()
	}
}

// TestArenasOfManySessions: so many share one, the next have another; with the last session each goes.
func TestArenasOfManySessions(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := marshal(t, unary("Relu"))
	var list []*Session
	of := map[uintptr]int{}
	for range 2*sharedBy + 1 {
		s := session(t, relu, SessionOptions{IntraOpThreads: 1, Patcher: sharing})
		list = append(list, s)
		of[library.limitOf(s.native)]++
	}
	var counts []int
	for limit, n := range of {
		if !shared(limit) {
			t.Errorf("an arena has limit %d", limit)
		}
		counts = append(counts, n)
	}
	slices.Sort(counts)
	if want := []int{1, sharedBy, sharedBy}; !slices.Equal(counts, want) {
		t.Errorf("%v sessions share arenas, want %v", counts, want)
	}
	for i, s := range list {
		expect(t, "session "+strconv.Itoa(i), run(t, s, -1, 2), 1, -2)
		s.Close()
	}
}

// TestArenaHoldsWhatRunsAtOnce: sessions that run in turn take no more than one of them.
func TestArenaHoldsWhatRunsAtOnce(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := marshal(t, unary("Relu"))
	x := make([]float32, 1<<20)
	one := 0
	for i := range sharedBy {
		s := session(t, relu, SessionOptions{IntraOpThreads: 1, Patcher: sharing})
		run(t, s, x...)
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
	relu := marshal(t, unary("Relu"))
	large, stays := session(t, relu, SessionOptions{Patcher: sharing}), session(t, relu, SessionOptions{Patcher: sharing})
	run(t, stays, -1)
	run(t, large, make([]float32, 16<<20)...)
	before := statistic(t, stays, "TotalAllocated")
	large.Close()
	after := statistic(t, stays, "TotalAllocated")
	if before < 64<<20 || after > 8<<20 {
		t.Errorf("the arena holds %d bytes after a large run, and %d when its session is no more", before, after)
	}
	expect(t, "the other", run(t, stays, -1, 2), 1, -2)
}

// TestResultsOutliveArena: a result stays where it is after the last session of its arena.
func TestResultsOutliveArena(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	s := session(t, marshal(t, unary("Relu")), SessionOptions{Patcher: sharing})
	x := make([]float32, 1<<16)
	for i := range x {
		x[i] = float32(i)
	}
	in := must.Value(NewTensor(library, []int64{int64(len(x))}, x))(t)
	defer in.Close()
	results := must.Value(s.Run(context.Background(), map[string]*Value{"x": in}))(t)
	defer closeAll(results)
	s.Close()
	noArenas(t)
	y := must.Value(Data[float32](results[0]))(t)
	for i := range x {
		if y[i] != -x[i] {
			t.Fatalf("y[%d] is %v", i, y[i])
		}
	}
}

// allocator is one that a program registers.
func (r *raw) allocator() uintptr {
	var own uintptr
	if err := library.try("GetAllocatorWithDefaultOptions", slotGetAllocatorWithDefaultOptions,
		uintptr(unsafe.Pointer(&own))); err != nil {
		r.Fatal(err)
	}
	info, err := library.cpuMemory()
	if err != nil {
		r.Fatal(err)
	}
	call := func(member int, arguments ...uintptr) uintptr {
		result, _, _ := purego.SyscallN(loadWord(own, member), append([]uintptr{own}, arguments...)...)
		return result
	}
	words := make([]uintptr, 8)
	words[0] = APIVersion
	words[allocatorAlloc] = purego.NewCallback(func(_, size uintptr) uintptr { return call(1, size) })
	words[2] = purego.NewCallback(func(_, p uintptr) uintptr { call(2, p); return 0 })
	words[3] = purego.NewCallback(func(uintptr) uintptr { return info })
	r.pins = append(r.pins, words)
	return address(words)
}

// TestArenaOfProgram: what a program registers in its environment stays there, whenever it does, and each of its
// calls has the result that it has without these arenas.
func TestArenaOfProgram(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	const limit = 1 << 40 // of the program's own arena
	r := newRaw(t)
	info := must.Value(library.arenaInfo())(t)
	defer library.call(slotReleaseMemoryInfo, info)
	own := r.allocator()
	ways := []struct {
		name     string
		register func() error
		limit    uintptr
	}{
		{"an arena", func() error { return library.register(&arena{library: library, env: r.env, tag: limit}) }, limit},
		{"an allocator", func() error { return library.try("RegisterAllocator", slotRegisterAllocator, r.env, own) }, 0},
	}
	// register of the library calls ONNX Runtime's own function: as the program's call it goes by the slot.
	seen := func() error {
		config, keys := r.word(), []*byte{(*byte)(pointer(r.text("max_mem")))}
		limits := []uintptr{limit}
		if err := library.try("CreateArenaCfgV2", slotCreateArenaCfgV2, address(keys), address(limits), 1,
			uintptr(unsafe.Pointer(config))); err != nil {
			return err
		}
		defer library.call(slotReleaseArenaCfg, *config)
		return library.try("CreateAndRegisterAllocator", slotCreateAndRegisterAllocator, r.env, info, *config)
	}
	unregister := func() error { return library.try("UnregisterAllocator", slotUnregisterAllocator, r.env, info) }
	at, size := r.bytes(marshal(t, unary("Relu")))
	make := func() *Session {
		s := must.Value(r.session(slotCreateSessionFromArray, at, size, 0))(t)
		expect(t, "a session", run(t, s, -1, 2), 1, -2)
		return s
	}
	for _, way := range ways {
		// Before the hook, which sees nothing of it.
		must.Succeed(t, way.register())
		install(t, Hook{Patcher: sharing, Strict: true})
		s := make()
		if l := library.limitOf(s.native); shared(l) {
			t.Errorf("%s was registered before: a session has an arena of limit %d", way.name, l)
		}
		if l, free := library.registered(r.env); l != way.limit || free {
			t.Errorf("%s was registered before: limit %d, nothing %v; want %d", way.name, l, free, way.limit)
		}
		s.Close()
		if err := unregister(); err != nil {
			t.Errorf("%s: %v", way.name, err)
		}

		// While sessions share an arena.
		if way.limit != 0 {
			way.register = seen
		}
		first := make()
		if l := library.limitOf(first.native); !shared(l) {
			t.Errorf("%s was taken away: a session has an arena of limit %d, none that is shared", way.name, l)
		}
		if err := unregister(); err == nil {
			t.Errorf("a program took away an arena that it has not registered")
		}
		must.Succeed(t, way.register())
		second := make()
		if l := library.limitOf(second.native); shared(l) {
			t.Errorf("%s was registered: a session has an arena of limit %d", way.name, l)
		}
		if l, free := library.registered(r.env); l != way.limit || free {
			t.Errorf("%s was registered: limit %d, nothing %v; want %d", way.name, l, free, way.limit)
		}
		expect(t, "a session of an arena that is registered no more", run(t, first, -1, 2), 1, -2)
		first.Close()
		second.Close()
		if l, free := library.registered(r.env); l != way.limit || free {
			t.Errorf("%s was registered, and sessions came and went: limit %d, nothing %v; want %d", way.name, l, free,
				way.limit)
		}
		if err := unregister(); err != nil {
			t.Errorf("%s: %v", way.name, err)
		}
		if err := unregister(); err == nil {
			t.Errorf("%s was taken away twice", way.name)
		}
		must.Succeed(t, library.Uninstall())
	}
}

// TestArenasAtOnce: sessions that come, run and go on many threads.
func TestArenasAtOnce(t *testing.T) {
	t.Cleanup(func() { noArenas(t) })
	relu := marshal(t, unary("Relu"))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 12 {
				s, err := library.NewSessionFromBytes(relu, SessionOptions{IntraOpThreads: 1, Patcher: sharing})
				if err != nil {
					t.Error(err)
					return
				}
				x := make([]float32, 1+1000*i+j)
				x[0] = float32(i)
				if y := run(t, s, x...); y[0] != -float32(i) {
					t.Errorf("%d: got %v", i, y[0])
				}
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
	quiet()
	install(t, Hook{Patcher: sharing, Strict: true})
	r := &raw{TB: t}
	at, size := r.bytes(marshal(t, unary("Relu")))
	var limits []uintptr
	for round := range 4 {
		env, out := r.word(), r.word()
		must.Succeed(t, library.try("CreateEnv", slotCreateEnv, 2, r.text("program"), uintptr(unsafe.Pointer(env))))
		must.Succeed(t, library.try("CreateSessionFromArray", slotCreateSessionFromArray, *env, at, size, 0,
			uintptr(unsafe.Pointer(out))))
		s := must.Value(library.wrapSession(*out))(t)
		if round%2 == 1 {
			library.call(slotReleaseEnv, *env) // before the session
		}
		expect(t, "a session", run(t, s, -1, 2), 1, -2)
		limits = append(limits, library.limitOf(s.native))
		s.Close()
		if round%2 == 0 {
			library.call(slotReleaseEnv, *env)
		}
	}
	slices.Sort(limits)
	if n := len(slices.Compact(limits)); n != 4 || !shared(limits[0]) {
		t.Errorf("the arenas of four environments have limits %v", limits)
	}
}
