package comparison

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/cpu"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan/machine"
)

// Environment is where figures were measured. Bandwidth stands beside times
// because machines have fast and slow spells.
type Environment struct {
	CPU               string   `json:"cpu"`
	Cores             int      `json:"cores"`
	OS                string   `json:"os"`
	Arch              string   `json:"arch"`
	ISA               []string `json:"isa"` // instruction sets that matter to operators
	Go                string   `json:"go"`
	ONNXRuntime       string   `json:"onnxruntime"`
	MemoryBandwidthGB float64  `json:"memory_bandwidth_gb_s"` // best of five reads by all cores
	// CoreShare is the part of a core that a thread got; 0 where it was not measured. See [Environment.Busy].
	CoreShare float64 `json:"core_share"`
	Date      string  `json:"date"`
}

// Busy reports whether others used the machine's cores: times of it mean little.
func (e Environment) Busy() bool { return e.CoreShare > 0 && e.CoreShare < machine.BusyShare }

// Measure describes the machine and measures its memory bandwidth, in about 0.2 s.
func Measure(l *ort.Library) Environment {
	e := Environment{CPU: CPUName(), Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		ISA: InstructionSets(),
		Go:  runtime.Version(), MemoryBandwidthGB: MemoryBandwidth() / 1e9, CoreShare: threads.CoreShare(shareTime),
		Date: time.Now().UTC().Format(time.RFC3339)}
	if l != nil {
		e.ONNXRuntime = l.Version()
	}
	return e
}

// shareTime is how long the machine is watched for other work.
const shareTime = 50 * time.Millisecond

// MemoryBandwidth is the best of five reads of 256 MiB by all cores, in bytes a
// second. The reader is the runtime's vectorised search for a byte that is not
// there. The memory is of large pages where the system has them.
func MemoryBandwidth() float64 {
	const size = 256 << 20
	region, err := memory.Reserve(size)
	if err != nil {
		return 0
	}
	defer region.Close()
	buf := region.Bytes()
	for i := 0; i < size; i += 64 {
		buf[i] = 1
	}
	cores := runtime.NumCPU()
	best := 0.0
	for range 5 {
		start := time.Now()
		var wg sync.WaitGroup
		for c := range cores {
			wg.Go(func() {
				part := buf[size/cores*c : size/cores*(c+1)]
				if bytes.IndexByte(part, 2) >= 0 {
					panic("comparison: a byte that was never written")
				}
			})
		}
		wg.Wait()
		best = max(best, size/time.Since(start).Seconds())
	}
	return best
}

// CPUName is the processor as the system names it.
func CPUName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// InstructionSets are those of the processor that matter to operators.
func InstructionSets() []string {
	list := []string{}
	for _, isa := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA},
		{"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL},
		{"avx512-vnni", cpu.X86.HasAVX512VNNI}, {"avx512-bf16", cpu.X86.HasAVX512BF16}, {"amx", cpu.X86.HasAMXTile},
		{"neon", cpu.ARM64.HasASIMD}, {"sve", cpu.ARM64.HasSVE},
	} {
		if isa.has {
			list = append(list, isa.name)
		}
	}
	return list
}
