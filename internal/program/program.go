package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/procs"
)

// Program is the executable or the package that a name on the command line stands for.
type Program struct {
	Name string // as typed: argv[0] of the ranks
	Path string // of the executable; for a package, once Build has run
	// Package is the argument for go build when Name is not a binary: a directory, an import path or a .go file.
	Package string
	Tags    []string // build tags of it
	Flags   []string // of go build
	file    *os.File // holds the built executable, which has no name in any file system; of Linux
	temp    string   // of other systems: the folder of the executable, to be removed
}

// Find says what name means, without building it:
//
//	a directory, a .go file, or an import path that is no file    a Go package
//	a path with a slash                                           that executable
//	a bare name                                                   the executable found in PATH
//
// A relative path is looked up here first and then in dir (--wdir).
func Find(name, dir string) (*Program, error) {
	if name == "" {
		return nil, errors.New("the name of the program is empty")
	}
	if !strings.ContainsRune(name, '/') && !strings.HasSuffix(name, ".go") && name != "." && name != ".." {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
			return &Program{Name: name, Path: path}, err
		}
		if _, statErr := os.Stat(name); statErr == nil {
			return nil, notFound(fmt.Sprintf("%s is not in PATH; to run the one in this folder, write ./%s", name, name))
		}
		return nil, notFound("no program " + name + " in PATH")
	}
	for _, path := range candidates(name, dir) {
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case st.IsDir():
			return packageIn(name, path)
		case strings.HasSuffix(name, ".go"):
			return &Program{Name: name, Package: path}, nil
		case st.Mode()&0o111 == 0:
			return nil, fmt.Errorf("%s is not executable (chmod +x?): %w", path, fs.ErrPermission)
		}
		return &Program{Name: name, Path: path}, nil
	}
	if looksLikeImport(name) {
		return &Program{Name: name, Package: name}, nil
	}
	return nil, notFound("there is no " + name)
}

// notFound is an fs.ErrNotExist that says by itself what is missing.
type notFound string

func (n notFound) Error() string     { return string(n) }
func (n notFound) Is(err error) bool { return err == fs.ErrNotExist }

func candidates(name, dir string) []string {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil
	}
	if filepath.IsAbs(name) || dir == "" {
		return []string{abs}
	}
	other, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return []string{abs}
	}
	return []string{abs, other}
}

func packageIn(name, path string) (*Program, error) {
	sources, _ := filepath.Glob(filepath.Join(path, "*.go"))
	if len(sources) == 0 {
		return nil, fmt.Errorf("%s is a folder without Go files: give a program or a Go package", name)
	}
	return &Program{Name: name, Package: path}, nil
}

// looksLikeImport reports whether a name may be an import path: example.com/x/y or module/x, not ./x, ../x, /x, ~/x or
// x/....
func looksLikeImport(name string) bool {
	return !strings.HasSuffix(name, ".go") && !strings.ContainsAny(name, " \t\\:~*") &&
		!strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "/") &&
		!strings.HasSuffix(name, "/") && !strings.HasSuffix(name, "...")
}

// Build compiles a package into a file that has no name, so that nothing can be left behind, however gorun ends. For a
// binary it does nothing. Output of the go command goes to stderr. cleanerArgv is a command that calls [procs.Clean].
func (p *Program) Build(ctx context.Context, stderr *os.File, cleanerArgv []string) error {
	if p.Package == "" {
		return nil
	}
	tool, err := goTool()
	if err != nil {
		return fmt.Errorf("%s is a Go package and must be built: %w", p.Name, err)
	}
	work, err := os.MkdirTemp("", procs.TempPrefix)
	if err != nil {
		return err
	}
	defer procs.RemoveFolder(work)
	target, err := p.target()
	if err != nil {
		return err
	}
	dir, name := "", p.Package
	if st, err := os.Stat(p.Package); err == nil && st.IsDir() {
		dir, name = p.Package, "." // its own module, wherever we are
	}
	// As go run does, the build stamps no revision: git refuses to tell root one of another user's checkout.
	cmd := exec.Command(tool, "build", "-buildvcs=false", "-o", target)
	cmd.Dir = dir
	cmd.Args = append(slices.Concat(cmd.Args, p.Flags, withTags(ctx, tool, dir, p.Tags)), name)
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.Env = append(os.Environ(), "GOTMPDIR="+work)
	if err := procs.RunGroup(ctx, cmd, work, cleanerArgv); err != nil {
		if _, statErr := os.Stat(p.Package); errors.Is(statErr, fs.ErrNotExist) { // an import path, or a file misspelt
			return fmt.Errorf("there is no file %s, and building it as a Go package failed: %w", p.Name, err)
		}
		return fmt.Errorf("building %s: %w", p.Name, err)
	}
	return p.check()
}

// Sendable returns an error if other hosts cannot keep the program in a file without a name. A script cannot be run
// from there: its interpreter would look for the name.
func (p *Program) Sendable() error {
	if p.Package != "" {
		return nil
	}
	f, err := os.Open(p.Path)
	if err != nil {
		return fmt.Errorf("--preload: %w", err)
	}
	defer f.Close()
	magic := make([]byte, 4)
	if n, _ := io.ReadFull(f, magic); string(magic[:n]) != "\x7fELF" {
		return fmt.Errorf("--preload: %s is no binary, and a script has to be there",
			p.Path)
	}
	return nil
}

// check looks at the file that the build has made: of a package that is no command it is an archive.
func (p *Program) check() error {
	f := p.file
	if f == nil {
		var err error
		if f, err = os.Open(p.Path); err != nil {
			return fmt.Errorf("building %s: go build wrote nothing: %w", p.Name, err)
		}
		defer f.Close()
	}
	magic := make([]byte, 8)
	if _, err := f.ReadAt(magic, 0); err != nil {
		return fmt.Errorf("building %s: go build wrote nothing: %w", p.Name, err)
	}
	if string(magic) == "!<arch>\n" {
		return fmt.Errorf("%s is no program: its package is not main", p.Name)
	}
	return f.Chmod(0o700)
}

// goTool finds the go command: in PATH, or where this program's own Go was.
func goTool() (string, error) {
	path, err := exec.LookPath("go")
	if err == nil {
		return path, nil
	}
	if root := os.Getenv("GOROOT"); root != "" {
		if path, err := exec.LookPath(filepath.Join(root, "bin", "go")); err == nil {
			return path, nil
		}
	}
	if path, err := exec.LookPath("/usr/local/go/bin/go"); err == nil {
		return path, nil
	}
	return "", errors.New("the go command is not in PATH; install Go, or give gorun a binary")
}

// Debugger finds dlv in PATH, or where go install puts programs.
func Debugger() (string, error) {
	path, err := exec.LookPath("dlv")
	if err == nil {
		return filepath.Abs(path)
	}
	folders := []string{os.Getenv("GOBIN")}
	for _, dir := range append(filepath.SplitList(os.Getenv("GOPATH")), filepath.Join(os.Getenv("HOME"), "go")) {
		folders = append(folders, filepath.Join(dir, "bin"))
	}
	for _, dir := range folders {
		if path, err := exec.LookPath(filepath.Join(dir, "dlv")); err == nil && filepath.IsAbs(dir) {
			return path, nil
		}
	}
	return "", notFound("dlv is not in PATH; install it with " +
		"go install github.com/go-delve/delve/cmd/dlv@latest, and have $(go env GOPATH)/bin in PATH")
}

// Send reads an executable and passes its pieces to send, and an empty piece at the end. It returns the error of a file
// that cannot be read; an error of send ends it.
func Send(path string, send func(piece []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 128<<10)
	for {
		n, err := file.Read(buf)
		if n > 0 && send(buf[:n]) != nil {
			return nil // the receiver of the pieces reports why
		}
		if err != nil {
			send(nil)
			return nil
		}
	}
}

// Close gives up the executable that Build has made.
func (p *Program) Close() {
	if p.file != nil {
		p.file.Close()
	}
	if p.temp != "" {
		os.RemoveAll(p.temp)
	}
}

// base is what the executable is called.
func (p *Program) base() string { return strings.TrimSuffix(filepath.Base(p.Package), ".go") }
