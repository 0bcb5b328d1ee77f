package worker

import (
	"fmt"
	"strings"
	"sync"
)

// tail holds the end of what a child printed.
type tail struct {
	mutex sync.Mutex
	data  []byte
}

// Write retains the last bytes.
func (t *tail) Write(p []byte) (int, error) {
	const limit = 2048
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.data = append(t.data, p...)
	if n := len(t.data); n > limit {
		t.data = append(t.data[:0], t.data[n-limit:]...)
	}
	return len(p), nil
}

// words is ", printing "..."" with the last line that was printed, or nothing.
func (t *tail) words() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	text := strings.TrimSpace(string(t.data))
	if text == "" {
		return ""
	}
	last := text[strings.LastIndexByte(text, '\n')+1:]
	const limit = 300
	if len(last) > limit {
		last = last[len(last)-limit:]
	}
	return fmt.Sprintf(", printing %q", strings.ToValidUTF8(last, "?"))
}
