package stall

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
)

// A body that goes on slowly arrives; one that stands still ends.
func TestStall(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 5 {
			_, _ = io.WriteString(w, "part")
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
		if r.URL.Path == "/stalls" {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: Transport(300 * time.Millisecond)}
	for path, stalls := range map[string]bool{"/": false, "/stalls": true} {
		answer := must.Value(client.Get(server.URL + path))(t)
		data, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if len(data) != 20 || errors.Is(err, ErrStalled) != stalls || !stalls && err != nil {
			t.Errorf("%s: %d bytes, %v", path, len(data), err)
		}
	}
}
