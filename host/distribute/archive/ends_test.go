package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

// sparsePacked is a tar of one file with PAX records.
func sparsePacked(t *testing.T, records map[string]string, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	// The writer refuses GNU's names, so they are put in afterwards.
	hidden := map[string]string{}
	for key, value := range records {
		hidden[strings.Replace(key, "GNU.", "GNX.", 1)] = value
	}
	must.Succeed(t, w.WriteHeader(&tar.Header{Name: "plugin.yaml", Mode: 0o644, Size: int64(size), PAXRecords: hidden,
		Format: tar.FormatPAX}))
	content := make([]byte, size)
	copy(content, "1\n0\n512\n") // a map of one piece, as the form 1.0 has it in the content
	must.Value(w.Write(content))(t)
	must.Succeed(t, w.Close())
	return bytes.ReplaceAll(b.Bytes(), []byte("GNX.sparse"), []byte("GNU.sparse"))
}

// oldSparse is a tar of one file in GNU's old sparse form: 512 bytes stored, 4 GiB said.
func oldSparse(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must.Succeed(t, w.WriteHeader(&tar.Header{Name: "plugin.yaml", Mode: 0o644, Size: 512, Format: tar.FormatGNU}))
	must.Value(w.Write(make([]byte, 512)))(t)
	must.Succeed(t, w.Close())
	head := b.Bytes()[:512]
	head[156] = tar.TypeGNUSparse
	copy(head[386:], fmt.Sprintf("%011o\x00%011o\x00", 4<<30-512, 512))
	copy(head[483:], fmt.Sprintf("%011o\x00", int64(4)<<30))
	copy(head[148:156], "        ")
	sum := 0
	for _, c := range head {
		sum += int(c)
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b.Bytes()
}

// An archive is whole to its last byte, holds what it says, and nothing after it; where that is not so, not one file
// is written.
func TestNothingIsWrittenOfABadArchive(t *testing.T) {
	whole := plugintest.Tar(t, []plugintest.Entry{{Name: "plugin.yaml", Data: []byte("x")}})
	gz := plugintest.Gzip(t, whole)
	with := func(data []byte, at int, to byte) []byte {
		data = bytes.Clone(data)
		data[len(data)+at] ^= to
		return data
	}
	evil := plugintest.Tar(t,
		[]plugintest.Entry{{Name: "plugin.yaml", Data: []byte("x")}, {Name: "../evil", Data: []byte("x")}})
	sparse := `found the entry "plugin.yaml", a sparse file, which is larger than what is stored of it, needed files that are stored whole`
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"checksum.tar.gz", with(gz, -8, 1), "gzip: invalid checksum"},
		{"length.tar.gz", with(gz, -4, 1), "gzip: invalid checksum"},
		{"cut in the checksum.tar.gz", gz[:len(gz)-3], "unexpected EOF"},
		{"cut before the checksum.tar.gz", gz[:len(gz)-8], "unexpected EOF"},
		{"garbage after.tar.gz", append(bytes.Clone(gz), "garbage, and some more"...), "gzip: invalid header"},
		{"another member.tar.gz", append(bytes.Clone(gz), plugintest.Gzip(t, []byte("more"))...), "it goes on after its end"},
		{"another tar.tar", append(bytes.Clone(whole), whole...), "it goes on after its end"},
		{"a byte after.tar", append(bytes.Clone(whole), 'x'), "it goes on after its end"},
		{"without an end.tar", whole[:1024], "it ends early, without the zeros that end a tar"},
		{"with half an end.tar", whole[:1024+512], "it ends early, without the zeros that end a tar"},
		{"a bad entry at the end.tar", evil, "../evil"},
		{"old.tar", oldSparse(t), sparse},
		{"0.0.tar", sparsePacked(t,
			map[string]string{"GNU.sparse.size": "4294967296", "GNU.sparse.numblocks": "1", "GNU.sparse.offset": "4294966784",
				"GNU.sparse.numbytes": "512"}, 512), ""},
		{"0.1.tar", sparsePacked(t,
			map[string]string{"GNU.sparse.size": "4294967296", "GNU.sparse.numblocks": "1", "GNU.sparse.map": "4294966784,512"},
			512), sparse},
		{"1.0.tar", sparsePacked(t,
			map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4294967296",
				"GNU.sparse.name": "plugin.yaml"}, 1024), sparse},
		{"declared.tar", plugintest.Tar(t,
			[]plugintest.Entry{{Name: "plugin.yaml", Data: []byte("x")}, {Name: "a", Data: make([]byte, 2000)}}),
			"found more than 1000 bytes of files"},
	} {
		folder := t.TempDir()
		path := filepath.Join(t.TempDir(), c.name)
		plugintest.WriteFile(t, path, c.data)
		l := defaultLimits
		if strings.HasPrefix(c.name, "declared") {
			l.bytes = 1000
		}
		err := unpack(context.Background(), path, folder, l)
		must.Fail(t, err, c.want)
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
			t.Errorf("%s: %d entries were written, %v; want none", c.name, len(entries), err)
		}
	}
	for _, good := range []struct {
		name string
		data []byte
	}{{"a.tar", whole}, {"a.tar.gz", gz},
		{"padded.tar", append(bytes.Clone(whole), make([]byte, 10240)...)}} {
		folder := t.TempDir()
		path := filepath.Join(t.TempDir(), good.name)
		plugintest.WriteFile(t, path, good.data)
		must.Succeed(t, Unpack(context.Background(), path, folder), good.name)
		if data, err := os.ReadFile(filepath.Join(folder, "plugin.yaml")); string(data) != "x" {
			t.Errorf("%s: %q, %v", good.name, data, err)
		}
	}
}

// A named pipe that has the name of an archive is not waited for.
func TestAPipeIsNoArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	must.Fail(t, Unpack(context.Background(), path, t.TempDir()), "found a named pipe")
}
