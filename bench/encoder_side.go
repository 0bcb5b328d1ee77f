package main

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
)

// encodeChild is the hidden first argument of a process that holds the sessions of one side.
const encodeChild = "encode-side"

// encodeJob says what such a process opens.
type encodeJob struct {
	Model   string
	Patched bool
	// Unoptimized sessions are made without any of ONNX Runtime's graph optimisations.
	Unoptimized bool
	Config      map[string]string // session config entries of a patched session
	Threads     int
	Sessions    int
}

// encodeRequest is one thing that it does.
type encodeRequest struct {
	Inputs  []array
	Warmup  int
	Runs    int     // of each session
	Answers bool    // give the outputs of the last run
	Cycles  int     // open, run and close a session this often
	Expect  bool    // what graft expects of these inputs
	Visible float64 // the share of tokens that the mask shows, for that
}

// encodeReply is what came of it.
type encodeReply struct {
	Error       string
	Inputs      []ort.ValueInfo // of the first reply
	Blocks      int             // of the first reply
	Replaced    int
	Plugins     []string
	OpenSeconds float64
	WallMS      []float64 // of each run
	ProcessorMS []float64 // of all threads, of each run
	PeakMB      float64   // of the process, since the request before
	Held        held      // after the request; of the first reply once the sessions were made
	Answers     []array
	Expected    float64 // speed-up of the whole model; 0 where there is no estimate
}

// held is what a process holds.
type held struct {
	RSSMB       float64 `json:"rss_mb"`
	Descriptors int     `json:"descriptors"`
	Threads     int     `json:"threads"` // but for those of Go's runtime, which starts some as it likes
}

// encodeSide is the process, seen from outside.
type encodeSide struct {
	command *exec.Cmd
	in      io.WriteCloser
	encoder *gob.Encoder
	decoder *gob.Decoder
	hello   encodeReply
}

func startSide(ctx context.Context, j encodeJob) (*encodeSide, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	s := &encodeSide{command: exec.CommandContext(ctx, self, encodeChild, string(job))}
	s.command.Stderr = os.Stderr
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	s.encoder, s.decoder = gob.NewEncoder(s.in), gob.NewDecoder(out)
	if err := s.read(&s.hello); err != nil {
		s.close()
		return nil, fmt.Errorf("%s: %w", j.Model, err)
	}
	return s, nil
}

func (s *encodeSide) read(r *encodeReply) error {
	if err := s.decoder.Decode(r); err != nil {
		return fmt.Errorf("the process of a side ended: %w", err)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

// do asks for one thing. The process sleeps before and after.
func (s *encodeSide) do(r encodeRequest) (*encodeReply, error) {
	if err := s.encoder.Encode(r); err != nil {
		return nil, err
	}
	reply := &encodeReply{}
	return reply, s.read(reply)
}

func (s *encodeSide) close() {
	if s == nil {
		return
	}
	s.in.Close()
	timer := time.AfterFunc(20*time.Second, func() { _ = s.command.Process.Kill() })
	defer timer.Stop()
	_ = s.command.Wait() // its error was an answer already
}

// sideProcess is what runs in the process.
type sideProcess struct {
	job      encodeJob
	library  *ort.Library
	set      *loaded.Set // nil for an unpatched side
	sessions []*session.Session
	hello    encodeReply
}

// stopSpinning lets the threads of a side sleep while the other is timed.
const stopSpinning = "session.force_spinning_stop"

// serveSide answers requests on standard input until there are no more.
func serveSide(ctx context.Context, args []string) error {
	p := &sideProcess{}
	encoder, decoder := gob.NewEncoder(os.Stdout), gob.NewDecoder(os.Stdin)
	err := p.start(args)
	if err != nil {
		p.hello = encodeReply{Error: err.Error()}
	}
	if err := encoder.Encode(p.hello); err != nil || p.hello.Error != "" {
		return err
	}
	for {
		var r encodeRequest
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		reply, err := p.answer(ctx, r)
		if err != nil {
			reply = &encodeReply{Error: err.Error()}
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
	}
}

func (p *sideProcess) start(args []string) (err error) {
	if len(args) != 1 {
		return fmt.Errorf("%s needs a job", encodeChild)
	}
	if err := json.Unmarshal([]byte(args[0]), &p.job); err != nil {
		return err
	}
	if p.library, err = ort.FindAndOpen(""); err != nil {
		return err
	}
	if p.job.Patched {
		if p.set, err = loaded.Load(nil, false); err != nil {
			return err
		}
	}
	start := time.Now()
	for range p.job.Sessions {
		s, err := p.open()
		if err != nil {
			return err
		}
		p.sessions = append(p.sessions, s)
	}
	p.hello.OpenSeconds = time.Since(start).Seconds()
	if len(p.sessions) > 0 {
		p.hello.Inputs = p.sessions[0].Inputs()
	}
	debug.FreeOSMemory() // what is left is not Go's
	p.hello.Held, err = holds()
	return err
}

func (p *sideProcess) open() (*session.Session, error) {
	o := session.Options{IntraOpThreads: p.job.Threads, Unpatched: true, Config: map[string]string{stopSpinning: "1"}}
	if p.job.Unoptimized {
		o.Optimization = session.OptimizeNone
	}
	if p.job.Patched {
		o.Unpatched = false
		maps.Copy(o.Config, p.job.Config)
		patcher := &sessions.Patcher{Plugins: p.set.Plugins, Options: p.set.Plan(plan.Options{})}
		o.Patcher = func(r session.Request) (*session.Patch, error) {
			planned, err := patcher.Plan(context.Background(), r)
			if planned == nil || err != nil {
				return nil, err
			}
			a := planned.Analysis
			p.hello.Blocks, p.hello.Replaced, p.hello.Plugins = len(a.Plan.Choices), a.Plan.Replaced(), a.Plugins()
			return planned.Patch()
		}
	}
	return session.Open(p.library, p.job.Model, o)
}

func (p *sideProcess) answer(ctx context.Context, r encodeRequest) (*encodeReply, error) {
	reply := &encodeReply{}
	fed := map[string]*ort.Value{}
	for _, a := range r.Inputs {
		v, err := p.library.NewTensorBytes(a.Element, a.Shape, a.Data)
		if err != nil {
			return nil, err
		}
		defer v.Close()
		fed[a.Name] = v
	}
	debug.FreeOSMemory() // what the request before left of Go's is no part of this one's peak
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return nil, fmt.Errorf("the peak of memory cannot be set back: %w", err)
	}
	for range r.Cycles {
		s, err := p.open()
		if err != nil {
			return nil, err
		}
		err = run(ctx, s, fed, &encodeReply{}, false)
		s.Close()
		if err != nil {
			return nil, err
		}
	}
	for _, s := range p.sessions {
		for range r.Warmup {
			if err := run(ctx, s, fed, &encodeReply{}, false); err != nil {
				return nil, err
			}
		}
		for i := range r.Runs {
			if err := run(ctx, s, fed, reply, r.Answers && i == r.Runs-1); err != nil {
				return nil, err
			}
		}
	}
	if r.Expect && p.set != nil {
		var err error
		if reply.Expected, err = p.expect(ctx, r.Inputs, r.Visible); err != nil {
			return nil, err
		}
	}
	var err error
	if reply.PeakMB, err = statusMB("VmHWM"); err != nil {
		return nil, err
	}
	if r.Cycles > 0 || r.Runs == 0 {
		debug.FreeOSMemory() // what is left is not Go's
	}
	reply.Held, err = holds()
	return reply, err
}

// run is one run of a session, as a program does it, with its wall time and the processor time of all threads.
func run(ctx context.Context, s *session.Session, fed map[string]*ort.Value, reply *encodeReply, answers bool) error {
	before, start := processorMS(), time.Now()
	results, err := s.Run(ctx, fed)
	took := float64(time.Since(start).Nanoseconds()) / 1e6
	used := processorMS() - before
	if err != nil {
		return err
	}
	reply.WallMS, reply.ProcessorMS = append(reply.WallMS, took), append(reply.ProcessorMS, used)
	for i, v := range results {
		if answers {
			data, err := v.Bytes()
			if err != nil {
				return err
			}
			reply.Answers = append(reply.Answers,
				array{s.Outputs()[i].Name, v.Element(), v.Shape(), append([]byte(nil), data...)})
		}
		v.Close()
	}
	return nil
}

// processorMS is the processor time of this process so far.
func processorMS() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are right
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// holds is what this process holds now.
func holds() (h held, err error) {
	if h.RSSMB, err = statusMB("VmRSS"); err != nil {
		return h, err
	}
	for folder, n := range map[string]*int{"/proc/self/fd": &h.Descriptors, "/proc/self/task": &h.Threads} {
		list, err := os.ReadDir(folder)
		if err != nil {
			return h, err
		}
		*n = len(list)
	}
	h.Threads -= pprof.Lookup("threadcreate").Count()
	return h, nil
}

// configEntries reads "NAME=VALUE,NAME=VALUE".
func configEntries(s string) (map[string]string, error) {
	entries := map[string]string{}
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("session config entry %q: needed NAME=VALUE", part)
		}
		entries[name] = value
	}
	return entries, nil
}
