package readme

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

// block is one fenced block of a document.
type block struct {
	language string
	line     int // of the first line inside
	lines    []string
}

func (b block) text() string { return strings.Join(b.lines, "\n") + "\n" }

// languages are those that a fence may name; everything else would pass unread.
var languages = []string{"sh", "console", "go", "python", "c", "cpp", "cmake", "yaml", "json", "text", "mermaid",
	"dockerfile"}

// cutBlocks cuts a Markdown document into its fenced blocks.
func cutBlocks(document string) ([]block, error) {
	var list []block
	open := -1 // index of the open block
	for i, line := range strings.Split(document, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !isFence && open >= 0:
			list[open].lines = append(list[open].lines, line)
		case !isFence:
		case open >= 0 && fence != "":
			return nil, fmt.Errorf("line %d: a block opens inside of the one of line %d", i+1, list[open].line-1)
		case open >= 0:
			open = -1
		default:
			if !slices.Contains(languages, fence) {
				return nil, fmt.Errorf("line %d: a block of language %q, need one of %v", i+1, fence, languages)
			}
			list = append(list, block{language: fence, line: i + 2})
			open = len(list) - 1
		}
	}
	if open >= 0 {
		return nil, fmt.Errorf("line %d: a block is not closed", list[open].line-1)
	}
	return list, nil
}

// command is one command line of a document.
type command struct {
	line int
	text string // as a shell takes it
	exit int    // the status that the document promises
}

// exits is the comment by which a document promises a status other than 0.
var exits = regexp.MustCompile(`\s#.*\bexits (\d+)\b`)

// commands lists those of an sh or console block. In a console block they follow "$ ", and other
// lines are what they print.
func (b block) commands() []command {
	var list []command
	joined, start := "", 0
	for i, line := range b.lines {
		if joined == "" {
			start = b.line + i
			if b.language == "console" {
				var isCommand bool
				if line, isCommand = strings.CutPrefix(line, "$ "); !isCommand {
					continue
				}
			}
		}
		if part, more := strings.CutSuffix(line, `\`); more {
			joined += part + " "
			continue
		}
		text := strings.TrimSpace(joined + line)
		joined = ""
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		c := command{line: start, text: text}
		if m := exits.FindStringSubmatch(text); m != nil {
			c.exit, _ = strconv.Atoi(m[1]) // digits, by the expression
		}
		list = append(list, c)
	}
	return list
}

func TestBlocks(t *testing.T) {
	const document = "text\n```sh\n# talk\na one\nb \\\n  two   # exits 5: why\n\n```\n```console\n$ c\nprinted\n```\n"
	list := must.Value(cutBlocks(document))(t)
	var got []command
	for _, b := range list {
		got = append(got, b.commands()...)
	}
	want := []command{{4, "a one", 0}, {5, "b    two   # exits 5: why", 5}, {10, "c", 0}}
	must.Equal(t, cmp.Diff(want, got, cmp.AllowUnexported(command{})), "")
	for document, want := range map[string]string{
		"```\nx\n```":          `line 1: a block of language "", need one of`,
		"```bash\nx\n```":      `line 1: a block of language "bash", need one of`,
		"```sh\nx":             "line 1: a block is not closed",
		"```sh\nx\n```go\n```": "line 3: a block opens inside of the one of line 1",
	} {
		must.Fail(t, must.Error(cutBlocks(document)), want)
	}
}
