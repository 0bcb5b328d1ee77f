package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/textgen"
)

// busy is the share of the cores' time that the load takes.
const busy = 0.8

// leak is the growth of the resident memory, in bytes, from which on it is a leak.
const leak = 100e6

// load is one process's sessions and generations.
type load struct {
	folder, model string
	words         []string
	tokens        map[int][][]int32 // what is generated for each word, by beams
	states        [][]float32       // of the encoder for each input

	mutex     sync.Mutex
	generator *textgen.Generator
	counts    map[string]int
	wrong     []string
	throttle  *throttle
}

// inputs are those of the encoder's session: token IDs of words, each of another length.
var inputs = [][]int64{{0, 22, 18, 4, 21, 2}, {0, 16, 18, 28, 17, 4, 11, 4, 17, 2}, {0, 22, 18, 4, 21, 8, 7, 2},
	{0, 5, 2}}

func runLoad(w io.Writer, root string, long time.Duration, seed uint64) (int, error) {
	folder, err := os.MkdirTemp("", "soak-load-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	if err := os.Setenv("GRAFT_PLUGIN_PATH", filepath.Join(root, "build/plugins")); err != nil {
		return 0, err
	}
	if err := os.Setenv("GRAFT_PLUGIN_UNVERIFIED", "1"); err != nil {
		return 0, err
	}
	l := &load{folder: folder, model: filepath.Join(root, "models/g2p"), tokens: map[int][][]int32{},
		counts: map[string]int{}}
	if err := l.prepare(root); err != nil {
		return 0, err
	}
	defer onnx.DestroyEnvironment()
	// The first round warms what a process makes once: the runtime's, the caches', the memory allocators'.
	if _, err := l.round(long/8, seed); err != nil {
		return 0, err
	}
	before := settled()
	history, err := l.round(long-long/8, seed+1)
	if err != nil {
		return 0, err
	}
	after := settled()
	l.judge(before, history, after)
	fmt.Fprintf(w, "\n%v of load, %.0f %% of %d cores, %d wrong\n", long, 100*l.throttle.share(), runtime.NumCPU(),
		len(l.wrong))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range l.counts {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(w, "  %-40s %d\n", name, l.counts[name])
	}
	fmt.Fprintf(w, "  %-40s %s\n", "all closed, an eighth into it", before)
	fmt.Fprintf(w, "  %-40s %s\n", "at its end", history[len(history)-1])
	fmt.Fprintf(w, "  %-40s %s\n", "all closed", after)
	for _, s := range l.wrong {
		fmt.Fprintln(w, "WRONG:", s)
	}
	return len(l.wrong), nil
}

// round is load for some time, from graft's enabling to its disabling.
func (l *load) round(long time.Duration, seed uint64) (history []holding, err error) {
	if err := graft.EnableWith(graft.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if l.generator, err = textgen.New(context.Background(), l.model, textgen.Options{BatchSize: 8}); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 1)) // each once, however busy the machine is
	l.generate(random)
	l.session(random, filepath.Join(l.folder, "model.onnx"))
	l.reload()
	l.throttle = newThrottle(busy)
	end := time.Now().Add(long)
	var group sync.WaitGroup
	for i := range 2 * runtime.NumCPU() {
		random := rand.New(rand.NewPCG(seed, uint64(2+i)))
		group.Go(func() { l.work(random, filepath.Join(l.folder, fmt.Sprintf("model-%d.onnx", i)), end) })
	}
	history = watch(end, long/64)
	group.Wait()
	if err := errors.Join(l.generator.Close(), graft.Disable()); err != nil {
		l.blame("closing: %v", err)
	}
	return history, nil
}

// prepare computes every answer once: states by ONNX Runtime alone, tokens undisturbed.
func (l *load) prepare(root string) error {
	path, err := graft.RuntimePath()
	if err != nil {
		return err
	}
	onnx.SetSharedLibraryPath(path)
	if err := onnx.InitializeEnvironment(); err != nil {
		return err
	}
	session, err := openSession(filepath.Join(l.model, "encoder_model.onnx"))
	if err != nil {
		return err
	}
	defer session.Destroy()
	for _, tokens := range inputs {
		states, err := encode(session, tokens)
		if err != nil {
			return err
		}
		l.states = append(l.states, states)
	}
	text, err := os.ReadFile(filepath.Join(root, "models/g2p/held_out.txt"))
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(text), "\n")[:48] {
		word, _, _ := strings.Cut(line, "\t")
		l.words = append(l.words, word)
	}
	g, err := textgen.New(context.Background(), l.model, textgen.Options{})
	if err != nil {
		return err
	}
	defer g.Close()
	for _, beams := range []int{1, 3} {
		for _, word := range l.words {
			out, err := g.Hypotheses(context.Background(), word, textgen.Search{Beams: beams})
			if err != nil {
				return err
			}
			l.tokens[beams] = append(l.tokens[beams], out[0].Tokens)
		}
	}
	return nil
}

// blame notes what was wrong, a few times.
func (l *load) blame(format string, args ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.counts["wrong"]++
	if len(l.wrong) < 50 {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

func (l *load) count(name string, n int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.counts[name] += n
}

// work does one thing after the other at random until the end.
func (l *load) work(random *rand.Rand, path string, end time.Time) {
	for time.Now().Before(end) {
		switch n := random.IntN(100); {
		case n < 60:
			l.generate(random)
		case n < 97:
			l.session(random, path)
		default:
			l.reload()
		}
		l.throttle.wait()
	}
}

// generate generates some words, in one of two calls cancelled at a random moment.
func (l *load) generate(random *rand.Rand) {
	beams := []int{1, 3}[random.IntN(2)]
	first := random.IntN(len(l.words))
	words := l.words[first:min(first+1+random.IntN(8), len(l.words))]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cancelled := random.IntN(2) == 0
	if cancelled {
		defer time.AfterFunc(time.Duration(random.Int64N(int64(40*time.Millisecond))), cancel).Stop()
	}
	l.mutex.Lock()
	g := l.generator
	l.mutex.Unlock()
	done := 0
	for out, err := range g.Generate(ctx, slices.Values(words), textgen.Search{Beams: beams}) {
		switch {
		case errors.Is(err, graft.ErrClosed):
			l.count("generations ended by a reload", 1)
			return
		case err != nil && ctx.Err() != nil:
			l.count("generations cancelled", 1)
			return
		case err != nil:
			l.blame("generating: %v", err)
			return
		case !slices.Equal(out.Hypotheses[0].Tokens, l.tokens[beams][first+out.Index]):
			l.blame("%s with %d beams: %v, want %v", words[out.Index], beams, out.Hypotheses[0].Tokens,
				l.tokens[beams][first+out.Index])
		}
		done++
	}
	if done != len(words) && ctx.Err() == nil {
		l.blame("%d results for %d inputs", done, len(words))
	}
	l.count("words generated", done)
}

// reload opens the model folder anew under the running calls.
func (l *load) reload() {
	g, err := textgen.New(context.Background(), l.model, textgen.Options{BatchSize: 8})
	if err != nil {
		l.blame("opening again: %v", err)
		return
	}
	l.mutex.Lock()
	g, l.generator = l.generator, g
	l.mutex.Unlock()
	if err := g.Close(); err != nil {
		l.blame("closing: %v", err)
	}
	l.count("reloads", 1)
}

// session makes a session, spoils its file in one of several ways, and runs it.
func (l *load) session(random *rand.Rand, path string) {
	model, err := os.ReadFile(filepath.Join(l.model, "encoder_model.onnx"))
	if err == nil {
		err = os.WriteFile(path, model, 0o600) // in place, as a deployment does
	}
	if err != nil {
		l.blame("%v", err)
		return
	}
	s, err := openSession(path)
	if err != nil {
		l.blame("making a session: %v", err)
		return
	}
	defer s.Destroy()
	way := random.IntN(len(spoilers))
	if err := spoilers[way].spoil(path, random); err != nil {
		l.blame("%s: %v", spoilers[way].name, err)
	}
	for range 1 + random.IntN(6) {
		which := random.IntN(len(inputs))
		states, err := encode(s, inputs[which])
		if err != nil {
			l.blame("running after the file was %s: %v", spoilers[way].name, err)
			return
		}
		if !near(states, l.states[which]) {
			l.blame("other answers after the file was %s", spoilers[way].name)
		}
		l.count("runs of a session whose file was "+spoilers[way].name, 1)
	}
}

// spoilers are what happens to a model's file under a session.
var spoilers = []struct {
	name  string
	spoil func(path string, random *rand.Rand) error
}{
	{"left", func(string, *rand.Rand) error { return nil }},
	{"overwritten", func(path string, random *rand.Rand) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		garbage := make([]byte, info.Size())
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(garbage)
		return errors.Join(err, f.Close())
	}},
	{"cut short", func(path string, random *rand.Rand) error { return os.Truncate(path, random.Int64N(1<<16)) }},
	{"deleted", func(path string, _ *rand.Rand) error { return os.Remove(path) }},
	{"replaced", func(path string, _ *rand.Rand) error {
		if err := os.WriteFile(path+".new", []byte("another model"), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}},
}

func openSession(path string) (*onnx.DynamicAdvancedSession, error) {
	o, err := onnx.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer o.Destroy()
	if err := o.SetIntraOpNumThreads(1); err != nil {
		return nil, err
	}
	return onnx.NewDynamicAdvancedSession(path, []string{"input_ids", "attention_mask"}, []string{"last_hidden_state"}, o)
}

// encode gives the hidden states of one text, row by row.
func encode(session *onnx.DynamicAdvancedSession, tokens []int64) ([]float32, error) {
	shape := onnx.NewShape(1, int64(len(tokens)))
	ids, err := onnx.NewTensor(shape, tokens)
	if err != nil {
		return nil, err
	}
	defer ids.Destroy()
	mask, err := onnx.NewTensor(shape, slices.Repeat([]int64{1}, len(tokens)))
	if err != nil {
		return nil, err
	}
	defer mask.Destroy()
	outputs := []onnx.Value{nil}
	if err := session.Run([]onnx.Value{ids, mask}, outputs); err != nil {
		return nil, err
	}
	defer outputs[0].Destroy()
	return slices.Clone(outputs[0].(*onnx.Tensor[float32]).GetData()), nil
}

// near is equality but for the order of additions.
func near(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Abs(float64(x-y)) <= 1e-4 })
}
