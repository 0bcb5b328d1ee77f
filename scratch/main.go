package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/sessions"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func cpu() float64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

func main() {
	batch := flag.Int("b", 32, "")
	seq := flag.Int("s", 256, "")
	real := flag.Int("r", 30, "")
	n := flag.Int("n", 5, "")
	mode := flag.String("mode", "ignore", "")
	vocab := flag.Int("v", 1000, "")
	force := flag.Bool("force", false, "")
	except := flag.String("except", "", "")
	threads := flag.Int("t", 1, "")
	flag.Parse()
	l, err := ort.FindAndOpen("")
	check(err)
	set, err := loaded.Load(nil, true)
	check(err)
	for _, path := range flag.Args() {
		so := ort.SessionOptions{Unpatched: true, IntraOpThreads: *threads}
		plain, err := l.NewSession(path, so)
		check(err)
		pm, err := plan.ParsePadding(*mode)
		check(err)
		o := plan.Options{Padding: pm, Force: *force}
		if *except != "" {
			o.Except = strings.Split(*except, ",")
		}
		p := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(o), Done: func(a *patch.Analysis) {
			fmt.Println("rows", a.Plan.Rows(), "replaced", a.Plan.Replaced(), "of", len(a.Plan.Choices), a.PaddingReason, a.Plugins())
		}}
		so.Unpatched, so.Patcher = false, p.Patch
		s, err := l.NewSession(path, so)
		check(err)
		r := rand.New(rand.NewPCG(1, 2))
		ids := make([]byte, 8**batch**seq)
		mask := make([]byte, 8**batch**seq)
		types := make([]byte, 8**batch**seq)
		total := 0
		for b := range *batch {
			length := *real
			if *real < *seq {
				length = min(*seq, max(2, *real/2+r.IntN(*real+1)))
			}
			total += length
			for i := range *seq {
				binary.LittleEndian.PutUint64(ids[8*(b**seq+i):], uint64(r.IntN(*vocab)))
				if i < length {
					mask[8*(b**seq+i)] = 1
				}
			}
		}
		feed := map[string]*ort.Value{}
		for _, in := range plain.Inputs() {
			data := ids
			if strings.Contains(in.Name, "mask") {
				data = mask
			} else if strings.Contains(in.Name, "type") {
				data = types
			}
			v, err := l.NewTensorBytes(ort.Int64, []int64{int64(*batch), int64(*seq)}, data)
			check(err)
			feed[in.Name] = v
		}
		run := func(s *ort.Session) float64 {
			t, c := time.Now(), cpu()
			out, err := s.Run(context.Background(), feed)
			check(err)
			d := time.Since(t).Seconds()
			if *threads == 1 {
				d = cpu() - c
			}
			for _, v := range out {
				v.Close()
			}
			return d
		}
		run(plain)
		run(s)
		var a, b, ratio []float64
		for range *n {
			x := run(plain)
			y := run(s)
			y2 := run(s)
			x2 := run(plain)
			a = append(a, x, x2)
			b = append(b, y, y2)
			ratio = append(ratio, (x+x2)/(y+y2))
		}
		sort.Float64s(a)
		sort.Float64s(b)
		sort.Float64s(ratio)
		fmt.Printf("%s b%d s%d real %.3f: plain %.2f ms patched %.2f ms ratio %.3f [%.3f %.3f]\n", path[strings.LastIndex(path, "/")+1:], *batch, *seq, float64(total)/float64(*batch**seq), 1e3*a[len(a)/2], 1e3*b[len(b)/2], ratio[len(ratio)/2], ratio[0], ratio[len(ratio)-1])
	}
	_ = os.Stdout
}
