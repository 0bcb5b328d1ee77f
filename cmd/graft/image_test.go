package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// imageFolder is a small model of images with its tokenizer, as tests/vision has them.
func imageFolder(t *testing.T, name string) string {
	t.Helper()
	f := must.Value(os.Open("../../tests/vision/testdata/expected.json.gz"))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	var all struct {
		Models map[string]struct{ Preprocessor, Tokenizer json.RawMessage }
	}
	must.Succeed(t, json.NewDecoder(z).Decode(&all))
	dir := t.TempDir()
	must.Succeed(t, models.Small(name, dir))
	for file, data := range map[string][]byte{"tokenizer.json": all.Models[name].Tokenizer,
		"preprocessor_config.json": all.Models[name].Preprocessor} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
	}
	return dir
}

// TestImages: images of the command line are what their paths as lines of input are, a prompt is continued, and both
// are refused for a model of text.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	var pages []string
	for i, name := range []string{"one.png", "two words.png"} {
		m := image.NewRGBA(image.Rect(0, 0, 50, 40))
		for x := range 50 {
			m.Set(x, (x*7+i*11)%40, color.RGBA{uint8(5 * x), 200, uint8(100 * i), 255})
		}
		var b bytes.Buffer
		must.Succeed(t, png.Encode(&b, m))
		pages = append(pages, filepath.Join(dir, name))
		must.Succeed(t, os.WriteFile(pages[i], b.Bytes(), 0o600))
	}
	list := filepath.Join(dir, "list")
	must.Succeed(t, os.WriteFile(list, []byte(strings.Join(pages, "\n")+"\n"), 0o600))
	generate := func(args ...string) (string, string, int) {
		var out, talk bytes.Buffer
		code := run(append([]string{"generate"}, append(args, "--max-new-tokens", "6", "--max-cache", "64MiB")...), &out,
			&talk)
		return out.String(), talk.String(), code
	}
	trocr := imageFolder(t, "trocr")
	shown, talk, code := generate(trocr, "--image", pages[0], "--image", pages[1])
	if code != exitOK || strings.Count(shown, "\n") != 2 {
		t.Fatalf("code %d, %q, %s", code, shown, talk)
	}
	if listed, talk, _ := generate(trocr, "--input", list); listed != shown {
		t.Errorf("as lines %q, as images %q; %s", listed, shown, talk)
	}
	donut := imageFolder(t, "donut")
	plain, _, _ := generate(donut, "--image", pages[0])
	prompted, talk, code := generate(donut, "--image", pages[0], "--prompt", "the")
	if code != exitOK || prompted == plain || prompted == "" {
		t.Errorf("code %d, with a prompt %q, without %q, %s", code, prompted, plain, talk)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{trocr, "--image", filepath.Join(dir, "none.png")}, exitError, "none.png"},
		{[]string{trocr, "--image", list}, exitError, "a PNG or JPEG file"},
		{[]string{trocr, "--image", pages[0], "--input", list}, exitUsage, "--image and --input"},
		{[]string{"../../models/g2p", "--image", pages[0]}, exitError, "the model reads no images, for which --image is"},
		{[]string{"../../models/g2p", "--prompt", "x", "--input", list}, exitError,
			"the model reads no images, for which --prompt is"},
	} {
		if _, talk, code := generate(c.args...); code != c.code || !strings.Contains(talk, c.want) {
			t.Errorf("%q: code %d, %s; want %d and %q", c.args[1:], code, talk, c.code, c.want)
		}
	}
}

// TestComparedFolders: folders of each kind of input are compared, and the size of an input is said.
func TestComparedFolders(t *testing.T) {
	for name, size := range map[string]string{"moonshine": "64000 samples", "trocr": "32 by 32 pixels",
		"whisper": "mel bins and 120 frames", "bart": "5 tokens"} {
		dir := t.TempDir()
		must.Succeed(t, models.Small(name, dir))
		var out, talk bytes.Buffer
		args := []string{"ab", dir, "--rounds", "1", "--max-new-tokens", "3", "--max-cache", "64MiB"}
		if name == "bart" {
			args = append(args, "--prompt-length", "5")
		}
		if code := run(args, &out, &talk); code != exitOK || !strings.Contains(out.String(), "1 input of ") ||
			!strings.Contains(out.String(), size+", 3 new tokens; sequences equal: 1 of 1") {
			t.Errorf("%s: code %d, %s%s, want %q", name, code, &out, &talk, size)
		}
	}
}
