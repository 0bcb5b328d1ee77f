package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// Subcommand is the one argument with which an executable becomes a child.
const Subcommand = "worker"

// What a child is started with, in its environment: that it is one, and how it is held.
const (
	cookieVariable  = "GRAFT_WORKER"
	settingVariable = "GRAFT_WORKER_SETTING"
)

// cookie names what the two processes say to each other. It changes when that does, so that an older graft
// executable is not mistaken for a child.
const cookie = "2-native-code-apart"

// The files that a child is started with.
const (
	requestsFile = 3 + iota // it reads
	answersFile             // it writes
	lifelineFile            // a guard's: closed when the parent is gone
	statusFile              // a guard's: how the child ended
)

// Inherited opens the file that the parent named as Options.Files[i]; nil where it named none.
func Inherited(i int) *os.File {
	if i < 0 || i >= inherited {
		return nil
	}
	return os.NewFile(uintptr(answersFile+1+i), fmt.Sprintf("inherited %d", i))
}

// inherited is how many files this child was given.
var inherited int

// setting is how a child is held. It travels in the environment.
type setting struct {
	Guard      bool     `json:"guard"`      // the process is the child's guard, and not yet the child
	Namespaces bool     `json:"namespaces"` // it was started in namespaces of its own
	Memory     int64    `json:"memory"`     // bytes that the child may take
	Scratch    string   `json:"scratch"`    // the folder in which it writes; "" for none
	File       int64    `json:"file"`       // bytes that a file which it writes may have
	Driver     bool     `json:"driver"`     // it uses a device's driver
	Without    []string `json:"without"`    // layers that are left out, by tests
	Layers     []Layer  `json:"layers"`     // what holds the child so far
	Files      int      `json:"files"`      // that it is given besides
}

// Handler does a task in the child. Request and result travel as JSON.
type Handler func(ctx context.Context, request json.RawMessage) (result any, err error)

// Handle makes a Handler of a function with a typed request.
func Handle[Request, Result any](do func(context.Context, Request) (Result, error)) Handler {
	return func(ctx context.Context, data json.RawMessage) (any, error) {
		var request Request
		if err := json.Unmarshal(data, &request); err != nil {
			return nil, fmt.Errorf("cannot read the request: %w", err)
		}
		return do(ctx, request)
	}
}

// hosted is set once this executable has shown that it can be a child.
var hosted atomic.Bool

// Main turns the process into a child, and never returns, when a parent started it as one; otherwise it
// notes that this executable can be one, and returns. Call it first in main or TestMain, before flags are
// read.
func Main(tasks map[string]Handler) {
	hosted.Store(true)
	if len(os.Args) != 2 || os.Args[1] != Subcommand || os.Getenv(cookieVariable) != cookie {
		return
	}
	var s setting
	err := json.Unmarshal([]byte(os.Getenv(settingVariable)), &s)
	switch {
	case err != nil:
	case s.Guard:
		err = guard(&s)
	default:
		inherited = s.Files
		if err = s.hold(); err == nil {
			err = serve(tasks, s.Layers)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "graft worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hello is a child's first message.
type hello struct {
	Layers []Layer `json:"layers"`
}

// call is what travels to the child.
type call struct {
	Task    string          `json:"task"`
	Request json.RawMessage `json:"request"`
}

// answer is what comes back: a result or the text of an error.
type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// serve does tasks until the parent has no more.
func serve(tasks map[string]Handler, layers []Layer) error {
	requests := json.NewDecoder(os.NewFile(requestsFile, "requests"))
	answers := json.NewEncoder(os.NewFile(answersFile, "answers"))
	if err := answers.Encode(hello{layers}); err != nil {
		return err
	}
	for {
		var c call
		if err := requests.Decode(&c); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read a request: %w", err)
		}
		if err := answers.Encode(do(tasks, c)); err != nil {
			return fmt.Errorf("cannot write an answer: %w", err)
		}
	}
}

// do does one task.
func do(tasks map[string]Handler, c call) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Error: fmt.Sprintf("task %s panicked: %v\n%s", c.Task, p, debug.Stack())}
		}
	}()
	handler, ok := tasks[c.Task]
	if !ok {
		return answer{Error: fmt.Sprintf("this executable knows no task %q; use the graft of the same version", c.Task)}
	}
	result, err := handler(context.Background(), c.Request)
	if err != nil {
		return answer{Error: err.Error()}
	}
	data, err := json.Marshal(result)
	if err != nil {
		return answer{Error: fmt.Sprintf("task %s: cannot encode its result: %v", c.Task, err)}
	}
	return answer{Result: data}
}
