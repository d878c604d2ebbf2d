package tuned

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
)

// Variable is the setting that names the file, or has its text.
const Variable = "GORUN_TUNED"

// Off is the value of Variable with which no file holds.
const Off = "off"

// Version is the version of the format. A reader refuses all others.
const Version = 1

// mostText bounds a file: its text is one variable of the environment of each rank. mostLines bounds its lines.
const (
	mostText  = 64 << 10
	mostLines = 512
	mostName  = 200 // is printed
)

// File is what gorun tune has found. Users may edit it.
type File struct {
	Version int `json:"version"`
	// Path is where the text was read that gorun hands to ranks. A file does not have it.
	Path string `json:"file,omitempty"`
	Host Host   `json:"measured"`
	// Collectives are read from above, before the library's table.
	Collectives []collectives.Line `json:"collectives"`
	// EagerMax is the eager limit between ranks of one host, over the transport that Host names. 0: the library's.
	EagerMax int64 `json:"eager_max,omitempty"`
}

// Host says where, when and how the last of the runs measured whose lines the file has. It tells readers; only
// Transport has an effect, on EagerMax.
type Host struct {
	Host      string `json:"host,omitempty"`
	CPU       string `json:"cpu,omitempty"`         // the model
	Online    int    `json:"online_cpus,omitempty"` // of the machine
	CPUs      int    `json:"cpus,omitempty"`        // that gorun tune could use
	Ranks     int    `json:"ranks,omitempty"`
	Crowded   bool   `json:"crowded,omitempty"` // ranks outnumbered CPUs
	Transport string `json:"transport,omitempty"`
	Date      string `json:"date,omitempty"`
	Gorun     string `json:"gorun,omitempty"`
}

// Here is the machine at hand. "", 0 and nil: not known.
type Here struct {
	CPU        string
	Online     int
	Transports []string // that a job may choose from
}

// Elsewhere says in what the machine that was measured differs from the one at hand; "": in nothing that both name.
func (f *File) Elsewhere(here Here) string {
	var all []string
	if h := f.Host; h.CPU != "" && here.CPU != "" && h.CPU != here.CPU {
		all = append(all, fmt.Sprintf("CPU %q, here %q", h.CPU, here.CPU))
	}
	if h := f.Host; h.Online > 0 && here.Online > 0 && h.Online != here.Online {
		all = append(all, fmt.Sprintf("%d CPUs, here %d", h.Online, here.Online))
	}
	if over := f.Host.Transport; over != "" && here.Transports != nil && !slices.Contains(here.Transports, over) {
		all = append(all, fmt.Sprintf("over %q, here over %s", over, strings.Join(here.Transports, ", ")))
	}
	return strings.Join(all, "; ")
}

// UserPath is the place of the file in the user's configuration directory.
func UserPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "gorun", "tuned.json"), nil
}

// nearName is the name of the file in the folder of a program.
const nearName = "gorun-tuned.json"

// Places are where the file is looked for, in order, that no setting names: next to the programs of the job, and in the
// user's configuration directory.
func Places(programs ...string) (paths []string) {
	for _, p := range programs {
		paths = append(paths, filepath.Join(filepath.Dir(p), nearName))
	}
	if p, err := UserPath(); err == nil {
		paths = append(paths, p)
	}
	return paths
}

// Find returns the file that holds where Variable has a value: a path, the text itself, Off, or "". For "" it is the
// first of the places that exists. nil: no file holds. Error and file name where the text is from.
func Find(value string, places []string) (*File, error) {
	switch {
	case value == Off:
		return nil, nil
	case strings.HasPrefix(value, "{"):
		f, err := Parse([]byte(value))
		if err != nil {
			return nil, fmt.Errorf("%s, whose value is the text of a file: %w", Variable, err)
		}
		return f, nil
	case value != "":
		return read(value, "named by "+Variable)
	}
	for _, path := range places {
		if _, err := os.Stat(path); err == nil { // in a folder that it may not enter a process cannot know of a file
			return read(path, "found there")
		}
	}
	return nil, nil
}

// read reads a file. why is how it came to be read.
func read(path, why string) (*File, error) {
	f, err := Read(path)
	if err == nil {
		return f, nil
	}
	return nil, fmt.Errorf("the tuned file %s (%s): %w; mend it, write it anew with `gorun tune`, or set %s=%s",
		path, why, err, Variable, Off)
}

// Read reads the file under a path, which the error does not name.
func Read(path string) (*File, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(text)
	if err != nil {
		return nil, err
	}
	f.Path, err = filepath.Abs(path)
	return f, err
}

// readText reads a regular file of bounded length: a pipe would hang, a device might not end.
func readText(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, bare(err)
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, bare(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostText+1))
	if err != nil {
		return nil, bare(err)
	}
	return text, nil
}

// bare is err without the path, which the caller names.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Parse reads the text of a file. The error names the line of the text, or the entry and the field.
func Parse(text []byte) (*File, error) {
	if len(text) > mostText {
		return nil, fmt.Errorf("it is longer than %d bytes", mostText)
	}
	var f File
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	if f.Version > 0 && f.Version != Version { // whose fields may be others
		return nil, fmt.Errorf("it has version %d; this library reads version %d", f.Version, Version)
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %s", lineOf(text, err, d.InputOffset()), plain(err))
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("line %d: there is more after the closing bracket", lineAt(text, d.InputOffset()))
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	return &f, nil
}

// check checks what the types do not say.
func (f *File) check() error {
	switch {
	case f.Version != Version:
		return fmt.Errorf("version: it is missing; this library reads version %d", Version)
	case len(f.Collectives) > mostLines:
		return fmt.Errorf("collectives: there are %d entries; at most %d are read", len(f.Collectives), mostLines)
	case f.EagerMax < 0 || f.EagerMax > 1<<30:
		return fmt.Errorf("eager_max: %d is not a number of bytes from 1 to 1 GiB; leave it out, or write for example "+
			"16384", f.EagerMax)
	}
	if m := f.Host; max(len(m.CPU), len(m.Transport)) > mostName {
		return fmt.Errorf("measured: cpu or transport is longer than %d bytes", mostName)
	}
	var c collectives.Choice
	return c.Tune(f.Collectives)
}

// plain is what is wrong, without the types of this package.
func plain(err error) string {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	value, _, _ := strings.Cut(kind.Value, " ") // "number 1.5" has the number too
	wanted := map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Int64: "a whole number",
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Struct: "an object"}
	return fmt.Sprintf("%s: it is of type %s; write %s", cmp.Or(kind.Field, "the file"), value,
		wanted[kind.Type.Kind()])
}

// lineOf is the line of the text at which an error is. JSON says of some errors where they are, and the decoder stands
// after the value for others.
func lineOf(text []byte, err error, read int64) int {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return lineAt(text, syntax.Offset)
	case errors.As(err, &kind):
		return lineAt(text, kind.Offset)
	}
	if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
		if at := bytes.Index(text, []byte(name)); at >= 0 { // in quotes, as in the text
			return lineAt(text, int64(at))
		}
	}
	return lineAt(text, read)
}

func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:max(0, min(offset, int64(len(text))))], []byte("\n"))
}

// Text is the file as one line, for the environment.
func (f *File) Text() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic("tuned: " + err.Error()) // it has numbers and strings only
	}
	return string(text)
}

// Digest is equal for files by which ranks choose alike.
func (f *File) Digest() string {
	text, err := json.Marshal(f.Collectives)
	if err != nil {
		panic("tuned: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Write writes the file under a path, whole or not at all, and makes the folder. It writes nothing that Read refuses.
func (f *File) Write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if _, err := Parse(text); err != nil {
		return fmt.Errorf("%s could not be read again: %w; remove lines from it, or name another file", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".gorun-tuned-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}
