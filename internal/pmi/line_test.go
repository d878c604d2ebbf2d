package pmi

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseLine(t *testing.T) {
	for _, c := range []struct {
		in   string
		cmd  string
		want map[string]string
	}{
		// hydra and Slurm, from cluster/FACTS.md §2
		{"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0", "response_to_init",
			map[string]string{"pmi_version": "1", "rc": "0"}},
		{"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1", "response_to_init",
			map[string]string{"pmi_version": "1", "rc": "0"}},
		{"cmd=get_result rc=0 msg=success value=(vector,(0,1,1))", "get_result",
			map[string]string{"value": "(vector,(0,1,1))"}},
		{"cmd=barrier_out", "barrier_out", nil},
		{"cmd=abort exitcode=7", "abort", map[string]string{"exitcode": "7"}},
		{"  cmd=a  b=c ", "a", map[string]string{"b": "c"}},
		{"b=c cmd=a", "a", map[string]string{"b": "c"}},
		{`cmd=a m=two\ words x=y`, "a", map[string]string{"m": `two\ words`, "x": "y"}},
		{"cmd=a v=x=y=", "a", map[string]string{"v": "x=y="}},
		{"cmd=a v= v=2", "a", map[string]string{"v": ""}},
	} {
		l, err := parseLine([]byte(c.in))
		if err != nil || l.cmd != c.cmd {
			t.Errorf("%q: %v %v", c.in, l, err)
		}
		for k, want := range c.want {
			if got, ok := l.get(k); !ok || got != want {
				t.Errorf("%q: %s=%q, want %q", c.in, k, got, want)
			}
		}
	}
	for _, in := range []string{"", " ", "cmd", "cmd=", "hello", "cmd=a b", "x=y", "cmd=a cmd=b", "cmd=a =b",
		"cmd=a\x00", "cmd=a\tb=c", "\x16\x03\x01\x02", "GET / HTTP/1.1\r"} {
		if l, err := parseLine([]byte(in)); !errors.Is(err, errGarbage) {
			t.Errorf("%q was taken for %v", in, l)
		}
	}
}

func TestUnescape(t *testing.T) {
	for escaped, want := range map[string]string{
		"": "", "plain": "plain", `two\ words`: "two words", `back\\slash`: `back\slash`, "ümläut": "ümläut", `\ \\\ `: ` \ `,
	} {
		l, err := parseLine([]byte("cmd=x m=" + escaped + " rc=3"))
		if m, _ := l.get("m"); err != nil || unescape(m) != want || l.rc() != 3 {
			t.Errorf("%q: %v %v, want %q", escaped, l, err, want)
		}
	}
}

func TestLineReader(t *testing.T) {
	long := "cmd=" + strings.Repeat("x", maxRead-5)
	in := "cmd=a\ncmd=b\n" + long + "\ncmd=c\ntail"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(in), "by byte": iotest.OneByteReader(strings.NewReader(in)),
		"halves": iotest.HalfReader(strings.NewReader(in)),
	} {
		lr := lineReader{r: r}
		for _, want := range []string{"cmd=a", "cmd=b", long, "cmd=c"} {
			if b, err := lr.next(); err != nil || string(b) != want {
				t.Fatalf("%s: %.20q %v, want %.20q", name, b, err, want)
			}
		}
		if b, err := lr.next(); err != io.ErrUnexpectedEOF {
			t.Errorf("%s: %q %v at the end", name, b, err)
		}
	}
	lr := lineReader{r: strings.NewReader(strings.Repeat("x", 3*maxRead))}
	if _, err := lr.next(); err != errLineTooLong {
		t.Errorf("endless line: %v", err)
	}
}

func TestEncodeLimit(t *testing.T) {
	fits := maxWrite - len("cmd=put value=\n")
	if b, err := newLine("put", "value", strings.Repeat("x", fits)).encode(); err != nil || len(b) != maxWrite {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := newLine("put", "value", strings.Repeat("x", fits+1)).encode(); err == nil {
		t.Error("a line over the limit was made")
	}
}

func TestValue(t *testing.T) {
	for _, limit := range []int{16, 40, 800} {
		for _, n := range []int{0, 1, 2, 3, 10, 599, 600, 601, 5000} {
			value := bytes.Repeat([]byte{0xff, 0, ' ', '\n', '='}, n/5+1)[:n]
			parts, err := splitValue(value, limit)
			if err != nil {
				t.Fatal(err)
			}
			text, count, err := firstPart(parts[0])
			if err != nil || count != len(parts) {
				t.Fatalf("limit %d, %d bytes: %d parts, said %d, %v", limit, n, len(parts), count, err)
			}
			for _, p := range parts {
				if len(p) > limit || strings.ContainsAny(p, " \n=\\") {
					t.Fatalf("limit %d: part %q", limit, p)
				}
			}
			back, err := decodeValue(text + strings.Join(parts[1:], ""))
			if err != nil || !bytes.Equal(back, value) {
				t.Fatalf("limit %d, %d bytes: came back as %d bytes, %v", limit, n, len(back), err)
			}
		}
	}
	if _, err := splitValue(make([]byte, MaxPut+1), 800); err == nil {
		t.Error("a value over MaxPut was taken")
	}
	for _, text := range []string{"", "x", "p", "p2", "p0.", "p1.", "p99999.", "p-2.", "unknown"} {
		if _, _, err := firstPart(text); err == nil {
			t.Errorf("%q was taken for a value", text)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{
		"cmd=init pmi_version=1 pmi_subversion=1", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
		"mcmd=spawn",
		`cmd=a m=two\ words`, `cmd=a m=\`, "cmd=get_result rc=-1 msg=key_nosuch_not_found value=unknown",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLine(b)
		if err != nil {
			return
		}
		again, err := parseLine([]byte(l.String()))
		if err != nil || again.String() != l.String() {
			t.Fatalf("%q -> %q -> %q %v", b, l, again, err)
		}
		l.rc()
		unescape(l.String())
	})
}
