package readme

import (
	"strings"
	"testing"
)

// TestReadmeInspect compares what README.md shows of graft inspect with what the command prints. Expected gains are
// those of a machine, and are left out; "..." stands for lines that are not shown.
func TestReadmeInspect(t *testing.T) {
	printed := string(newSandbox(t).output(t, "inspect", "model.onnx"))
	for _, b := range read(t, "README.md") {
		if !strings.HasPrefix(b.lines[0], "model.onnx: ") {
			continue
		}
		for _, line := range b.lines {
			if fixed, _, _ := strings.Cut(line, "expected"); line != "..." && !strings.Contains(printed, fixed) {
				t.Errorf("README.md shows %q, graft inspect prints\n%s", line, printed)
			}
		}
		return
	}
	t.Error("README.md does not show what graft inspect prints")
}
