package imports

import (
	"github.com/opgraft/graft/internal/must"
	"go/ast"
	"strconv"
	"strings"
	"testing"
)

// Rooms are what a reader meets first: the wings, the commands, and the other folders at the top. An arrow is that a
// room imports another.
const (
	maxRooms  = 34
	maxArrows = 220
)

// room is the one that a folder lies in.
func room(folder string) string {
	top, rest, _ := strings.Cut(folder, "/")
	if below, _, _ := strings.Cut(rest, "/"); below != "" && (top == "host" || top == "cmd" || top == "bindings") {
		return top + "/" + below
	}
	return top
}

// TestRooms: folders and the imports between them stay few enough to see. go test -v -run TestRooms ./tests/imports
// says how large it is.
func TestRooms(t *testing.T) {
	rooms, arrows := map[string]bool{}, map[[2]string]bool{}
	parsed(t, func(folder string, test bool, file *ast.File) {
		if test {
			return
		}
		from := room(folder)
		rooms[from] = true
		for _, i := range file.Imports {
			path := must.Value(strconv.Unquote(i.Path.Value))(t)
			if path+"/" == module {
				path = module + "."
			}
			if own, ok := strings.CutPrefix(path, module); ok && room(own) != from {
				arrows[[2]string{from, room(own)}] = true
			}
		}
	})
	t.Logf("%d rooms, %d arrows", len(rooms), len(arrows))
	if len(rooms) > maxRooms || len(arrows) > maxArrows {
		t.Errorf("found %d rooms and %d arrows, needed at most %d and %d", len(rooms), len(arrows), maxRooms, maxArrows)
	}
}
