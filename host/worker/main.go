package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/rpc"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
)

// Subcommand is the one argument with which an executable becomes a child.
const Subcommand = "worker"

// handshake stops a parent from talking to some other program. Its version rises when tasks change in a
// way that an older graft executable would misunderstand.
var handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  1,
	MagicCookieKey:   "GRAFT_WORKER",
	MagicCookieValue: "91f1c5f2-native-code-apart",
}

const service = "tasks"

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
	if len(os.Args) != 2 || os.Args[1] != Subcommand || os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		return
	}
	if err := hardenChild(); err != nil {
		fmt.Fprintln(os.Stderr, "graft worker:", err)
		os.Exit(1)
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         goplugin.PluginSet{service: &netService{server: &server{tasks: tasks}}},
		Logger:          hclog.NewNullLogger(),
	})
	// The parent has said goodbye and is closing the connection: leaving first would make it log a broken
	// pipe. It ends this process itself; the wait is for a parent that forgets to.
	time.Sleep(5 * time.Second)
	os.Exit(0)
}

// netService joins both ends to go-plugin.
type netService struct{ server *server }

// Server is the child's end.
func (s *netService) Server(*goplugin.MuxBroker) (any, error) { return s.server, nil }

// Client is the parent's end.
func (s *netService) Client(_ *goplugin.MuxBroker, c *rpc.Client) (any, error) { return c, nil }

// Call is what travels to the child.
type Call struct {
	Task    string
	Request []byte
}

// Answer is what comes back: a result or the text of an error.
type Answer struct {
	Result []byte
	Error  string
}

type server struct {
	tasks    map[string]Handler
	redirect sync.Once
}

// Do runs one task. It is called by net/rpc.
func (s *server) Do(call Call, answer *Answer) (err error) {
	// The handshake has been read by now. What native code prints must not fill a pipe that only carried
	// the handshake, so from here on it goes to standard error.
	s.redirect.Do(redirectOutput)
	defer func() {
		if p := recover(); p != nil {
			answer.Error = fmt.Sprintf("task %s panicked: %v\n%s", call.Task, p, debug.Stack())
		}
	}()
	handler, ok := s.tasks[call.Task]
	if !ok {
		answer.Error = fmt.Sprintf("this executable knows no task %q; use the graft of the same version", call.Task)
		return nil
	}
	result, err := handler(context.Background(), call.Request)
	if err != nil {
		answer.Error = err.Error()
		return nil
	}
	if answer.Result, err = json.Marshal(result); err != nil {
		answer.Error = fmt.Sprintf("task %s: cannot encode its result: %v", call.Task, err)
	}
	return nil
}
