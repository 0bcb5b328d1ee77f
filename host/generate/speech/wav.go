package speech

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Sound is recorded speech: one channel, samples from -1 to 1.
type Sound struct {
	Rate    int // samples a second
	Samples []float32
}

// Kinds of samples in a WAV file ("fmt " chunk).
const (
	wavIntegers   = 1
	wavFloats     = 3
	wavExtensible = 0xfffe
)

// wavFormat is the chunk "fmt " of a WAV file.
type wavFormat struct {
	kind, channels int
	rate           int
	bits           int
}

// ReadWAV reads a WAV file (RIFF) of integers of 8, 16, 24 or 32 bits or floats of
// 32 or 64, of which it takes at most seconds (0: all). Several channels are
// averaged.
func ReadWAV(r io.Reader, seconds int) (*Sound, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return nil, fmt.Errorf("found %q, needed is a WAV file, which begins with RIFF and WAVE", head[:])
	}
	var format *wavFormat
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, errors.New("the WAV file has no samples (chunk data)")
			}
			return nil, err
		}
		name, size := string(chunk[:4]), int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch name {
		case "fmt ":
			var err error
			if format, err = readFormat(r, size); err != nil {
				return nil, err
			}
		case "data":
			if format == nil {
				return nil, errors.New("the WAV file's samples (chunk data) come before their format (chunk fmt)")
			}
			return format.read(r, size, seconds)
		default:
			if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
				return nil, fmt.Errorf("the WAV file ends in its chunk %q", name)
			}
		}
	}
}

func readFormat(r io.Reader, size int64) (*wavFormat, error) {
	if size < 16 || size > 1<<16 {
		return nil, fmt.Errorf("the WAV file's format (chunk fmt) has %d bytes, needed are 16 or more", size)
	}
	data := make([]byte, size+size%2)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, errors.New("the WAV file ends in its format (chunk fmt)")
	}
	short := func(at int) int { return int(binary.LittleEndian.Uint16(data[at:])) }
	f := &wavFormat{kind: short(0), channels: short(2), rate: int(binary.LittleEndian.Uint32(data[4:])), bits: short(14)}
	if f.kind == wavExtensible && size >= 26 {
		f.kind = short(24)
	}
	switch {
	case f.channels == 0 || f.rate == 0:
		return nil, fmt.Errorf("the WAV file has %d channels and %d samples a second", f.channels, f.rate)
	case f.kind == wavIntegers && (f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32):
	case f.kind == wavFloats && (f.bits == 32 || f.bits == 64):
	default:
		return nil, fmt.Errorf("the WAV file has samples of kind %d with %d bits; needed are integers (1) of 8, 16, 24 or "+
			"32 bits or floats (3) of 32 or 64: convert it, as with ffmpeg -i IN -c:a pcm_s16le OUT.wav", f.kind, f.bits)
	}
	return f, nil
}

// read takes the samples of a chunk of some size. Programs that write to a pipe do
// not know the size and leave 0 or all ones: then the samples go on to the end.
func (f *wavFormat) read(r io.Reader, size int64, seconds int) (*Sound, error) {
	frame := int64(f.channels * f.bits / 8)
	if size == 0 || size == math.MaxUint32 {
		size = math.MaxInt64
	}
	if seconds > 0 {
		size = min(size, int64(seconds)*int64(f.rate)*frame)
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return nil, err
	}
	if size != math.MaxInt64 && int64(len(data)) < size {
		return nil, fmt.Errorf("the WAV file ends after %d bytes of samples, its head says %d: it was cut short", len(data),
			size)
	}
	s := &Sound{Rate: f.rate, Samples: make([]float32, int64(len(data))/frame)}
	if len(s.Samples) == 0 {
		return nil, errors.New("the WAV file has no samples")
	}
	width := f.bits / 8
	for i := range s.Samples {
		sum := 0.0
		for c := range f.channels {
			sum += f.sample(data[(i*f.channels+c)*width:])
		}
		v := sum / float64(f.channels)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("sample %d of the WAV file is %g", i, v)
		}
		s.Samples[i] = float32(v)
	}
	return s, nil
}

// sample is one number, integers scaled to -1 to 1.
func (f *wavFormat) sample(b []byte) float64 {
	switch {
	case f.kind == wavFloats && f.bits == 64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case f.kind == wavFloats:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case f.bits == 8: // the only one without a sign
		return (float64(b[0]) - 128) / 128
	case f.bits == 16:
		return float64(int16(binary.LittleEndian.Uint16(b))) / (1 << 15)
	case f.bits == 24:
		return float64(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)) / (1 << 31)
	}
	return float64(int32(binary.LittleEndian.Uint32(b))) / (1 << 31)
}
