package generations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
)

// Footprint is the memory of a process that opened one way of generating and
// generated once. Resident bytes count what is mapped from files too.
type Footprint struct {
	// OpenedRSSBytes is the RSS when the model was open, GeneratingPeakRSSBytes the peak
	// from then on, and PeakRSSBytes the peak at any time; 0 where the system does not say.
	OpenedRSSBytes         int64 `json:"opened_rss_bytes"`
	GeneratingPeakRSSBytes int64 `json:"generating_peak_rss_bytes"`
	PeakRSSBytes           int64 `json:"peak_rss_bytes"`
}

// generation is what a child that is measured is to do.
type generation struct {
	Folder  string
	Side    string
	Options Options
}

// RunChild does the work of a process that Compare started to measure one
// side's memory: it reads a job from in, generates once and writes the footprint to
// out.
func RunChild(ctx context.Context, l *ort.Library, set *loaded.Set, in io.Reader, out io.Writer) error {
	var j generation
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("the job is not understood: %w", err)
	}
	config, err := modeldir.ReadConfig(j.Folder)
	if err != nil {
		return err
	}
	inputs, err := j.Options.inputs(config)
	if err != nil {
		return err
	}
	w, err := openWay(ctx, l, set, j.Folder, j.Side, config, inputs, j.Options)
	if err != nil {
		return err
	}
	defer w.close()
	f := Footprint{OpenedRSSBytes: comparison.Resident("VmRSS"), PeakRSSBytes: comparison.Resident("VmHWM")}
	begun := forgetPeak()
	if _, _, err := w.run(ctx); err != nil {
		return err
	}
	peak := comparison.Resident("VmHWM")
	f.PeakRSSBytes = max(f.PeakRSSBytes, peak)
	if begun {
		f.GeneratingPeakRSSBytes = peak
	}
	return json.NewEncoder(out).Encode(f)
}

// forgetPeak lets the kernel count the peak RSS anew.
func forgetPeak() bool {
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil
}

// footprint lets a child generate. Native code that crashes, or that hangs until the deadline, is an error.
func (j generation) footprint(ctx context.Context, start func(context.Context) *exec.Cmd) (f Footprint, err error) {
	within, done := context.WithTimeout(ctx, j.Options.Deadline)
	defer done()
	child := start(within)
	task, err := json.Marshal(j)
	if err != nil {
		return f, err
	}
	var out, talk bytes.Buffer
	child.Stdin, child.Stdout, child.Stderr = bytes.NewReader(task), &out, &talk
	if err := child.Run(); err != nil {
		switch ended := (*exec.ExitError)(nil); {
		case ctx.Err() != nil:
			return f, ctx.Err()
		case within.Err() != nil:
			return f, &diagnostic.Error{Path: j.Folder,
				Found: fmt.Sprintf("opening it and generating once took more than %v", j.Options.Deadline),
				Fix:   "a plugin may hang, as graft plugin verify finds out, or allow more time with --deadline"}
		case errors.As(err, &ended) && !ended.Exited():
			return f, &diagnostic.Error{Path: j.Folder,
				Found: fmt.Sprintf("native code ended the process that generated: %v", err),
				Fix:   "a plugin may have a fault, or ONNX Runtime: graft plugin verify tries each plugin"}
		}
		if said := strings.TrimSpace(talk.String()); said != "" {
			return f, fmt.Errorf("%s", strings.TrimPrefix(said, "graft: "))
		}
		return f, fmt.Errorf("the process that measures memory failed: %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return f, fmt.Errorf("the process that measures memory wrote %q: %w", out.String(), err)
	}
	return f, nil
}
