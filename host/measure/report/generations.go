package report

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/statistics"
)

// folder is a report on a comparison of whole generations.
type folder struct {
	*generations.Compared
	single bool // the data are those of one side
}

// Generations writes the report on a comparison of whole generations of a model folder: an HTML file of less than
// MaxBytes.
func Generations(c *generations.Compared, o Options) ([]byte, error) {
	f := &folder{Compared: c}
	var data any = c
	if r := c.Result(); r != nil {
		f.single, data = true, r
	}
	p := &page{Title: filepath.Base(c.Model)}
	f.verdict(p)
	return render(p, data, o, f.speed, f.times, f.tokens, f.texts, f.memory, f.plan,
		func() (*section, error) { return f.subject(o) })
}

// against is the place of what is known of a side against A, and of the side.
func (f *folder) against(side int) (compared, own string) {
	switch {
	case side < 0:
		return "/a", "/a"
	case f.single:
		return "", "/b"
	}
	at := fmt.Sprintf("/sides/%d", side)
	return at, at
}

func (f *folder) of(side int) *generations.Side {
	if side < 0 {
		return &f.A
	}
	return &f.Sides[side].Side
}

// name is what a side is called in tables.
func (f *folder) name(side int) string { return named(side, f.of(side).Name) }

func (f *folder) names() []string {
	var names []string
	for i := range f.Sides {
		names = append(names, f.Sides[i].Name)
	}
	return names
}

// inputs are what is generated from, in words.
func (f *folder) inputs() string {
	each := diagnostic.Counted(f.InputTokens, "token")
	switch s := f.InputFeatures; len(s) {
	case 0:
	case 2:
		each = fmt.Sprintf("%d samples", s[1])
	case 3:
		each = fmt.Sprintf("%d mel bins and %d frames", s[1], s[2])
	default:
		each = fmt.Sprintf("%d by %d pixels", s[len(s)-2], s[len(s)-1])
	}
	if f.Batch == 1 {
		return "one input of " + each
	}
	return fmt.Sprintf("%s of %s each", diagnostic.Counted(f.Batch, "input"), each)
}

// verdict is what stands on top.
func (f *folder) verdict(p *page) {
	best := -1
	var wrong []string
	for i := range f.Sides {
		b := &f.Sides[i]
		if b.Equal != b.Sequences {
			wrong = append(wrong, fmt.Sprintf("%s (%d of %d sequences are equal)", b.Name, b.Equal, b.Sequences))
		} else if best < 0 || b.Speedup.Median > f.Sides[best].Speedup.Median {
			best = i
		}
	}
	if p.Right = len(wrong) == 0; p.Right {
		p.Answers = fmt.Sprintf("The tokens are equal, token by token: %s.",
			diagnostic.Counted(f.Sides[0].Sequences, "sequence"))
	} else {
		p.Answers = "The tokens differ from those of " + f.A.Name + ": " + strings.Join(wrong, ", ") + "."
	}
	switch {
	case best < 0:
		p.State, p.Verdict = "bad", "No side generates what "+f.A.Name+" does"
	default:
		p.State, p.Verdict = single(f.Sides[best].Name, f.A.Name, f.Sides[best].Speedup)
	}
	p.Lead = append(p.Lead, fmt.Sprintf(
		"Whole generations from %s. a is %s; compared with it: %s. %s in which each side generates twice, there and back.",
		f.inputs(), f.A.Name, strings.Join(f.names(), ", "), diagnostic.Counted(f.Rounds, "round")))
	p.Lead = append(p.Lead, comparison.OfGenerations.Describe(f.A.Name, f.A.Plugins, f.A.Versions)+".")
	for i := range f.Sides {
		if b := &f.Sides[i]; b.Name != f.A.Name {
			p.Lead = append(p.Lead, comparison.OfGenerations.Describe(b.Name, b.Plugins, b.Versions)+".")
		}
	}
}

// single is the verdict on one speed-up.
func single(name, a string, s statistics.Speedup) (state, verdict string) {
	switch {
	case !s.Significant:
		return "even", fmt.Sprintf("No significant difference in time between %s and %s", name, a)
	case s.Median > 1:
		return "good", fmt.Sprintf("%s is %s× as fast as %s", name, times(s.Median), a)
	}
	return "bad", fmt.Sprintf("%s is slower than %s: %s× as fast", name, a, times(s.Median))
}

// speed is the section of speed-ups.
func (f *folder) speed() (*section, error) {
	s := &section{ID: "speed", Title: "Speed-up",
		Text: []string{"Time of a over time of the other side, each the median of its runs: of whole generations, and of " +
			"what follows the first tokens. Lines and columns of intervals are 95 % confidence. ~ marks what chance alone " +
			"could have done."}}
	if len(f.Sides) > 1 {
		s.Legend = legend("", f.names())
	}
	var whole, decode []ratio
	t := table{Head: []head{{"side", false}, {"speed-up", true}, {"95 % interval", true}, {"p", true},
		{"decode steps", true}, {"95 % interval", true}, {"tokens/s", true}, {"decode tokens/s", true}, {"TTFT, ms", true},
		{"runs", true}, {"tokens", false}}}
	for i := -1; i < len(f.Sides); i++ {
		at, own := f.against(i)
		side := f.of(i)
		row := []cell{text(f.name(i))}
		if i < 0 {
			row = append(row, text(""), text(""), text(""), text(""), text(""))
		} else {
			b := &f.Sides[i]
			row = append(row, speedup(b.Speedup, at+"/speedup"), interval(b.Speedup, at+"/speedup"),
				pvalue(b.Speedup.P, at+"/speedup"),
				speedup(b.DecodeSpeedup, at+"/decode_speedup"), interval(b.DecodeSpeedup, at+"/decode_speedup"))
			whole = append(whole, ratio{b.Name, i, b.Speedup})
			decode = append(decode, ratio{b.Name, i, b.DecodeSpeedup})
			if b.Speedup.Few && len(s.Text) == 1 {
				s.Text = append(s.Text, fewRuns)
			}
		}
		row = append(row, one(num(side.TokensPerSecond, own+"/tokens_per_second", fixed(side.TokensPerSecond, 1))),
			one(num(side.DecodeTokensPerSecond, own+"/decode_tokens_per_second", fixed(side.DecodeTokensPerSecond, 1))),
			one(scaled(side.TTFTMedianSeconds, 1e3, own+"/ttft_median_seconds", fixed(1e3*side.TTFTMedianSeconds, 1))),
			text(fmt.Sprint(len(side.Seconds))))
		switch {
		case i < 0:
			row = append(row, text(""))
		case f.Sides[i].Equal == f.Sides[i].Sequences:
			row = append(row, text("equal"))
		default:
			row = append(row, cell{Text: "DIFFERENT", Class: "bad"})
		}
		t.Rows = append(t.Rows, row)
	}
	for _, list := range [][]ratio{whole, decode} {
		says := "Speed-up of whole generations over " + f.A.Name
		if len(s.Charts) > 0 {
			says = "Speed-up of decode steps over " + f.A.Name
		}
		c, err := forest(list, says)
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, c)
	}
	s.Tables = append(s.Tables, t)
	return s, nil
}

// times is the section of distributions.
func (f *folder) times() (*section, error) {
	s := timesSection()
	if len(f.Sides) > 1 {
		s.Legend = legend(f.name(-1), f.names())
	}
	var whole, first []runs
	for i := -1; i < len(f.Sides); i++ {
		side := f.of(i)
		whole, first = append(whole, runs{f.name(i), i, side.Seconds}), append(first, runs{f.name(i), i, side.TTFTSeconds})
	}
	points := max(maxPoints/(2*len(whole)), 8)
	for i, list := range [][]runs{whole, first} {
		says := []string{"Whole generations", "Until every request has its first token"}[i]
		c, err := distribution(list, "seconds", points, says)
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, c)
	}
	return s, nil
}

// tokens is the section of what was generated.
func (f *folder) tokens() (*section, error) {
	s := &section{ID: "tokens", Title: "Tokens",
		Text: []string{"A sequence is equal when it has the same tokens as a's, all of them. The steps of which rows were " +
			"reordered say how much the search moved."}}
	t := table{Head: []head{{"side", false}, {"equal sequences", true}, {"of", true}, {"new tokens", true},
		{"different tokens, least", true}, {"steps with reordered rows", true}}}
	for i := range f.Sides {
		b := &f.Sides[i]
		at, _ := f.against(i)
		equal := count(b.Equal, at+"/equal")
		if b.Equal != b.Sequences {
			equal.Class = "bad"
		}
		share := scaled(b.ReorderShare, 100, at+"/reorder_share", fixed(100*b.ReorderShare, 1))
		share.After = " %"
		t.Rows = append(t.Rows, []cell{text(b.Name), equal, count(b.Sequences, at+"/sequences"),
			count(b.NewTokens, at+"/new_tokens"), count(b.MinDistinct, at+"/min_distinct_tokens"), one(share)})
	}
	s.Tables = append(s.Tables, t)
	if t := f.drafts(); t != nil {
		s.Text = append(s.Text, "Drafted tokens were verified several in a step; each that was accepted is a step less. "+
			"Counts are of all runs.")
		s.Tables = append(s.Tables, *t)
	}
	return s, nil
}

// memory is the section of caches and peak RSS.
func (f *folder) memory() (*section, error) {
	s := &section{ID: "memory", Title: "Memory",
		Text: []string{"Resident memory (RSS) of a process that opened one side and generated once: when the model was " +
			"open, from then on at most, and at most at any time. What is mapped from files counts. The cache is that of " +
			"keys and values, all copies counted."}}
	t := table{Head: []head{{"side", false}, {"opened, MB", true}, {"generating, MB", true}, {"peak, MB", true},
		{"cache, MB", true}, {"cache a request, MB", true}}}
	groups := []bar{{name: "opened"}, {name: "peak"}, {name: "cache"}}
	for i := -1; i < len(f.Sides); i++ {
		_, own := f.against(i)
		side := f.of(i)
		t.Rows = append(t.Rows, []cell{text(f.name(i)), megabytes(side.OpenedRSSBytes, own+"/opened_rss_bytes"),
			megabytes(side.GeneratingPeakRSSBytes, own+"/generating_peak_rss_bytes"),
			megabytes(side.PeakRSSBytes, own+"/peak_rss_bytes"), megabytes(side.CacheBytes, own+"/cache_bytes"),
			megabytes(side.RequestBytes, own+"/cache_bytes_per_request")})
		for k, bytes := range []int64{side.OpenedRSSBytes, side.PeakRSSBytes, side.CacheBytes} {
			groups[k].values = append(groups[k].values, float64(bytes)/1e6)
		}
	}
	s.Tables = append(s.Tables, t)
	if f.A.PeakRSSBytes > 0 {
		s.Legend = legend(f.name(-1), f.names())
		c, err := bars(groups, "MB", "Memory")
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, c)
	}
	return s, nil
}

// plan is the section of what runs each layer, and why.
func (f *folder) plan() (*section, error) {
	s := &section{ID: "plan", Title: "Plan",
		Text: []string{"Which plugin runs the attention of each layer, and what it stores."}}
	t := table{Head: []head{{"side", false}, {"layers", true}, {"kind", false}, {"strategy", false}, {"plugin", false},
		{"reason", false}, {"first layer", false}}}
	for i := -1; i < len(f.Sides); i++ {
		type kind struct{ kind, strategy, plugin, reason string }
		var order []kind
		nodes := map[kind][]string{}
		for _, l := range f.of(i).Attention {
			k := kind{l.Type, string(l.Strategy), l.Plugin, l.Reason}
			if nodes[k] == nil {
				order = append(order, k)
			}
			nodes[k] = append(nodes[k], l.Node)
		}
		if len(order) == 0 {
			t.Rows = append(t.Rows, []cell{text(f.name(i)), text(""), text(""), text("as exported"), text(""), text(""),
				text("")})
		}
		for _, k := range order {
			t.Rows = append(t.Rows, []cell{text(f.name(i)), text(fmt.Sprint(len(nodes[k]))), text(k.kind), text(k.strategy),
				text(k.plugin), {Text: k.reason, Class: "wrap"}, code(nodes[k][0])})
		}
	}
	t.cut(maxChoices)
	s.Tables = append(s.Tables, t)
	plugins := table{Head: []head{{"side", false}, {"plugins", false}}}
	for i := -1; i < len(f.Sides); i++ {
		plugins.Rows = append(plugins.Rows, []cell{text(f.name(i)), text(strings.Join(f.of(i).Plugins, ", "))})
	}
	s.Tables = append(s.Tables, plugins)
	return s, nil
}

// subject is the section of what was run where.
func (f *folder) subject(o Options) (*section, error) {
	return &section{ID: "environment", Title: "Inputs and environment",
		Tables: []table{environment(&f.Environment, o,
			[][]cell{{text("model"), code(f.Model)}, {text("inputs"), text(f.inputs())}})}}, nil
}
