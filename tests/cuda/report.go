package cuda

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Resources are what ptxas gave to a kernel on one architecture.
type Resources struct {
	Kernel      string // with template arguments, without namespaces, spaces and parameters: Gelu<float,true>
	Arch        string // sm_90
	Registers   int    // a thread
	Stack       int    // bytes a thread
	SpillStores int    // bytes
	SpillLoads  int    // bytes
	Shared      int    // static, bytes a block
}

var (
	entryLine    = regexp.MustCompile(`^ptxas info\s*: Compiling entry function '([^']+)' for '(sm_\w+)'$`)
	functionLine = regexp.MustCompile(`^ptxas info\s*: Function properties for (\S+)$`)
	stackLine    = regexp.MustCompile(`^\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads$`)
	lossLine     = regexp.MustCompile(`^ptxas info\s*: \(C\d+\) .*`) // serialised wgmma, setmaxnreg left out
	usedLine     = regexp.MustCompile(`^ptxas info\s*: Used (\d+) registers\b(.*)$`)
	sharedPart   = regexp.MustCompile(`(\d+) bytes smem`)
)

// ParseReport reads what ptxas -v wrote of one source. Kernels have their mangled names; functions that were
// not inlined are their callers' stack and are left out. A report in which a kernel's lines are torn apart or
// incomplete is an error, and so is a performance that ptxas says it lost.
func ParseReport(r io.Reader) ([]Resources, error) {
	var all []Resources
	var kernel *Resources // whose lines these are
	own, complete := false, true
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), " \r")
		if m := entryLine.FindStringSubmatch(line); m != nil {
			if !complete {
				return nil, fmt.Errorf("line %d: found another kernel before %s had its registers", n, kernel.Kernel)
			}
			all = append(all, Resources{Kernel: m[1], Arch: m[2]})
			kernel, own, complete = &all[len(all)-1], false, false
			continue
		}
		if lossLine.MatchString(line) {
			return nil, fmt.Errorf("line %d: %s", n, line)
		}
		if m := functionLine.FindStringSubmatch(line); m != nil {
			own = kernel != nil && m[1] == kernel.Kernel
			continue
		}
		if m := stackLine.FindStringSubmatch(line); m != nil && own {
			kernel.Stack, kernel.SpillStores, kernel.SpillLoads = number(m[1]), number(m[2]), number(m[3])
			continue
		}
		if m := usedLine.FindStringSubmatch(line); m != nil {
			if complete || !own {
				return nil, fmt.Errorf("line %d: found registers that belong to no kernel: %s", n, line)
			}
			kernel.Registers = number(m[1])
			if s := sharedPart.FindStringSubmatch(m[2]); s != nil {
				kernel.Shared = number(s[1])
			}
			complete = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !complete {
		return nil, fmt.Errorf("the report ends before %s has its registers", kernel.Kernel)
	}
	return all, nil
}

func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 1 << 30 // more digits than any budget has
	}
	return n
}

// Demangle turns the kernels' symbols into names that budgets know, by c++filt of binutils.
func Demangle(all []Resources) error {
	if len(all) == 0 {
		return nil
	}
	var in strings.Builder
	for _, r := range all {
		fmt.Fprintln(&in, r.Kernel)
	}
	filter := exec.Command("c++filt")
	filter.Stdin = strings.NewReader(in.String())
	out, err := filter.Output()
	if err != nil {
		return fmt.Errorf("c++filt: %w; install binutils", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(names) != len(all) {
		return fmt.Errorf("c++filt gave %d names for %d symbols", len(names), len(all))
	}
	for i := range all {
		all[i].Kernel = shortName(names[i])
	}
	return nil
}

// shortName cuts a demangled function down: no return type, no parameters, no namespaces, no spaces.
func shortName(name string) string {
	name = strings.TrimPrefix(name, "void ")
	name = strings.ReplaceAll(name, "(anonymous namespace)::", "")
	name = name[:parametersOf(name)]
	name = castPattern.ReplaceAllString(name, "")
	name = scopePattern.ReplaceAllString(name, "")
	return strings.ReplaceAll(name, " ", "")
}

// parametersOf is where a function's parameters begin: the first parenthesis outside of template arguments, in
// which (bool)1 has one.
func parametersOf(name string) int {
	depth := 0
	for i, c := range name {
		switch {
		case c == '<':
			depth++
		case c == '>':
			depth--
		case c == '(' && depth == 0:
			return i
		}
	}
	return len(name)
}

var (
	castPattern  = regexp.MustCompile(`\([\w: ]+\)`)
	scopePattern = regexp.MustCompile(`\b\w+::`)
)
