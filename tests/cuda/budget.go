package cuda

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Budget is a line of kernels-cuda/budgets.txt: what kernels of a name may use on any architecture.
type Budget struct {
	Line      int
	Pattern   string // a Resources.Kernel in which * stands for anything
	Registers int    // the maximum of a thread
	Spill     int    // the maximum of bytes of spill stores, and of loads
	Stack     int    // the maximum of bytes of stack beside what spills take
	match     *regexp.Regexp
}

// ParseBudgets reads lines of a pattern, registers, and where a kernel needs any, bytes of spills and of
// stack; # begins a comment.
func ParseBudgets(r io.Reader) ([]Budget, error) {
	var all []Budget
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 2 || len(fields) > 4 {
			return nil,
				fmt.Errorf("line %d: found %d fields, need a kernel, registers and, if any, bytes of spills and of stack", n,
					len(fields))
		}
		var numbers [3]int
		for i, f := range fields[1:] {
			if _, err := fmt.Sscanf(f, "%d", &numbers[i]); err != nil || numbers[i] < 0 || fmt.Sprint(numbers[i]) != f {
				return nil, fmt.Errorf("line %d: found %q, need a number", n, f)
			}
		}
		if numbers[0] < 1 || numbers[0] > 255 {
			return nil, fmt.Errorf("line %d: found %d registers, need 1 to 255", n, numbers[0])
		}
		expression := strings.ReplaceAll(regexp.QuoteMeta(fields[0]), `\*`, `.*`)
		all = append(all, Budget{n, fields[0], numbers[0], numbers[1], numbers[2],
			regexp.MustCompile("^" + expression + "$")})
	}
	return all, lines.Err()
}

// CheckBudgets holds kernels against budgets: each kernel has the first line that matches it, and where they are all
// kernels, each line matches one. It returns a problem a line.
func CheckBudgets(budgets []Budget, kernels []Resources, all bool) []string {
	var problems []string
	used := map[int]bool{}
	for _, k := range kernels {
		name := k.Kernel + " on " + k.Arch
		var budget *Budget
		for i := range budgets {
			if budgets[i].match.MatchString(k.Kernel) {
				budget = &budgets[i]
				break
			}
		}
		if budget == nil {
			problems = append(problems,
				fmt.Sprintf("%s: found no budget; it uses %d registers, %d bytes of spills: add a line", name, k.Registers,
					max(k.SpillStores, k.SpillLoads)))
			continue
		}
		used[budget.Line] = true
		spill := max(k.SpillStores, k.SpillLoads)
		if k.Registers > budget.Registers {
			problems = append(problems,
				fmt.Sprintf("%s: found %d registers, line %d allows %d", name, k.Registers, budget.Line, budget.Registers))
		}
		if spill > budget.Spill {
			problems = append(problems,
				fmt.Sprintf("%s: found %d bytes of spills, line %d allows %d", name, spill, budget.Line, budget.Spill))
		}
		if k.Stack > budget.Stack+budget.Spill {
			problems = append(problems,
				fmt.Sprintf("%s: found %d bytes of stack, line %d allows %d", name, k.Stack, budget.Line,
					budget.Stack+budget.Spill))
		}
	}
	for _, b := range budgets {
		if all && !used[b.Line] {
			problems = append(problems, fmt.Sprintf("line %d: no kernel is called %s: remove the line", b.Line, b.Pattern))
		}
	}
	return problems
}
