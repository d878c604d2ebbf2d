package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
)

// SSH is the remote shell if none is named. It must not ask: there may be no user to answer.
var SSH = []string{"ssh", "-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}

// Shell starts agents by a remote shell. Its words are followed by the host and the one word sh.
type Shell struct {
	Words []string
	Self  *Self
}

// Lines that the script prints.
const (
	runLine  = "gorun-run "  // the path of a program that is started, and should be an agent
	wantLine = "gorun-want " // uname -sm: the binary, please
	failLine = "gorun-fail " // why it cannot be
)

// script runs the agent: the same file as here if it is the same build, else the one that an earlier job has left in
// the cache, else the one that comes down the stream. All of it is one compound command, so that the sh has read it to
// the end before it begins. Nothing else is sent before the sh asks: some read more of a pipe than they need.
//
// An agent of another build says so by its exit code. 126 and 127: it is for another machine, or no agent at all. The
// sh does not see whether another program was an agent: Open does. The size of a copy in the cache is looked at before
// it is run: a host that has crashed may have left an empty one, and sh takes that for a script.
// The ranks have the umask of the log-in.
//
// What is in the folder is run. So it must be a folder and no link, of this user, and other users cannot write there:
// one that is there and is not so is refused, and not passed over, because its owner should know of it. Where there can
// be none in the home, or nothing can be written or executed there, it is one in the folder for all users; if another
// user has taken its name there, it has another name. Builds that have not run for 30 days leave it when one comes.
const script = `{
run() { [ -x "$1" ] || return 0; echo; echo "RUN$1"; "$1" WORDS; s=$?
  case $s in OTHER|126|127) ;; *) exit $s;; esac; }
whole() { [ -f "$1" ] && [ ! -h "$1" ] && [ -O "$1" ] && [ "$(wc -c <"$1")" -eq SIZE ]; }
fail() { echo; echo "FAIL$1"; exit 1; }
own() { [ -d "$1" ] && [ ! -h "$1" ] && [ -O "$1" ] && case $(ls -ld "$1") in d????-??-*) ;; *) false;; esac; }
runs() { { whole "$1/BUILD" && [ -x "$1/BUILD" ]; } && return
  p=$(mktemp "$1/x.XXXXXX" 2>/dev/null) && echo exit >"$p" && chmod 700 "$p" && "$p" 2>/dev/null; s=$?; rm -f "$p"
  return $s; }
run PATH
d=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
[ "$d" ] && d=$d/gorun && (umask 077; mkdir -p "$d") 2>/dev/null
[ "$d" ] && { [ -e "$d" ] || [ -h "$d" ]; } && { ! own "$d" || runs "$d"; } || {
  d=${TMPDIR:-/tmp}/gorun-$(id -u)
  mkdir -m 700 "$d" 2>/dev/null
  if [ -h "$d" ] || { [ -e "$d" ] && [ ! -O "$d" ]; }; then
    for t in "$d".*; do own "$t" && break; done
    own "$t" || t=$(mktemp -d "$d.XXXXXX") || fail "$d, where it would be kept, is another user's; set XDG_CACHE_HOME there"
    d=$t
  fi
}
[ -e "$d" ] || [ -h "$d" ] || fail "there is no folder for it: $d cannot be made"
[ ! -h "$d" ] || fail "$d, where it would be kept, is a symbolic link; remove it"
[ -O "$d" ] || fail "$d, where it would be kept, is another user's; remove it, or set XDG_CACHE_HOME there"
case $(ls -ld "$d") in
d????-??-*) ;;
*) fail "$d, where it would be kept, is no folder, or one that others can write: chmod 700 it";;
esac
runs "$d" || fail "$d, where it would be kept, takes no program (full, or noexec?); set XDG_CACHE_HOME there"
f=$d/BUILD
whole "$f" && { touch -c "$f"; run "$f"; }
find "$d" -type f -mtime +30 -exec rm -f {} ';' 2>/dev/null
t=$(mktemp "$f.XXXXXX") || fail "it cannot be written to $d"
trap 'rm -f "$t"' HUP TERM INT
echo; echo "WANT$(uname -sm)"
head -c SIZE >"$t" && whole "$t" && chmod 700 "$t" && mv -f "$t" "$f" ||
  { rm -f "$t"; fail "it cannot be written to $d"; }
echo "RUN$f"
exec "$f" WORDS
}
`

// script has the agent at path looked for, and then in the cache; "": there only.
func (x Shell) script(path string) string {
	return strings.NewReplacer("WORDS", strings.Join(x.Self.words(), " "), "BUILD", x.Self.Build,
		"OTHER", fmt.Sprint(otherBuild), "PATH", Quote(path), "SIZE", fmt.Sprint(x.Self.size), "RUN", runLine,
		"WANT", wantLine, "FAIL", failLine).Replace(script)
}

// Quote makes one word of sh of s.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// command is the words of the remote shell, the host, and sh. kubectl takes a command behind -- only (since 1.31).
func (x Shell) command(host string) []string {
	words := append(append([]string(nil), x.Words...), host)
	if name := filepath.Base(x.Words[0]); name == "kubectl" || name == "oc" {
		words = append(words, "--")
	}
	return append(words, "sh")
}

// Open is Reach's. Where another program is at gorun's path, it is passed over in a second try.
func (x Shell) Open(ctx context.Context, host string) (*Edge, error) {
	e, err := x.open(ctx, host, x.Self.Path)
	var no *noAgent
	if !errors.As(err, &no) || no.path != x.Self.Path {
		return e, err
	}
	e, second := x.open(ctx, host, "")
	if second == nil {
		return e, nil
	}
	return nil, &Error{Err: fmt.Errorf("%w; %w", err, second), Final: !Again(second, true)}
}

// noAgent is a program on a host that has ended without a word of an agent's.
type noAgent struct{ path, why string }

func (n *noAgent) Error() string {
	return fmt.Sprintf("%.200s there does not answer as gorun: %s", n.path, n.why)
}

func (x Shell) open(ctx context.Context, host, path string) (*Edge, error) {
	p, err := spawn(x.command(host), syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	if err := p.until(ctx, func() error { return x.converse(p, path) }); err != nil {
		p.close()
		return nil, err
	}
	return p.edge(), nil
}

// converse has the script run, up to the hello of an agent.
func (x Shell) converse(p *process, path string) error {
	// Where the shell has ended and takes no script, what it has printed says why.
	if _, err := io.WriteString(p.in, x.script(path)); err != nil && !errors.Is(err, syscall.EPIPE) {
		return x.failed(p, "", err)
	}
	running := ""
	for {
		l, err := p.reply()
		if err != nil {
			return x.failed(p, running, err)
		}
		if path, ok := strings.CutPrefix(l, runLine); ok {
			running = path
			p.noise.Reset() // it was the login shell's
			continue
		}
		if there, ok := strings.CutPrefix(l, wantLine); ok {
			p.copied = true
			err := x.Self.copyTo(p.in, there)
			if err != nil && !errors.Is(err, syscall.EPIPE) {
				return &Error{Err: err, Final: true}
			}
			continue // where the host takes no more of it, it says why
		}
		if why, ok := strings.CutPrefix(l, failLine); ok {
			return &Error{Err: fmt.Errorf("gorun of this build is not there, and %.300q", why), Final: true}
		}
		if l == hello {
			return nil
		}
		return &Error{Err: fmt.Errorf("what answers there is no agent of this build: %.80q", l), Final: true}
	}
}

// failed says why a remote shell has ended before there was an agent. running is the program that it had started on the
// host; "": none that is known of.
func (x Shell) failed(p *process, running string, err error) error {
	if known := (*Error)(nil); errors.As(err, &known) {
		return err
	}
	<-p.ended // the stream has ended
	state := p.cmd.ProcessState
	heard := p.heard()
	verdict := fateOf(filepath.Base(x.Words[0]), state.ExitCode(), p.words.String(), p.noise.String()+running)
	if code := state.ExitCode(); verdict == final && running != "" && code != otherBuild {
		return &Error{Err: &noAgent{running, state.String() + colon(heard)}, Final: true}
	}
	why := strings.TrimPrefix(heard, filepath.Base(x.Words[0])+": ") // it leads with what was said
	switch {
	case why == "":
		why = state.String()
	case state.ExitCode() != shellFailed:
		why += "; " + state.String()
	}
	return &Error{Err: fmt.Errorf("%s: %s", x.Words[0], why), Final: verdict == final, Unnamed: verdict == unnamed}
}
