package report

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Encode returns the bytes of a part.
func (p *Part) Encode() ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(p)
	return b.Bytes(), err
}

// Decode reads the bytes of a part.
func Decode(b []byte) (*Part, error) {
	p := new(Part)
	return p, gob.NewDecoder(bytes.NewReader(b)).Decode(p)
}

// Write writes report.json and trace.json into a folder, which it makes.
func (m *Merged) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	text, err := json.MarshalIndent(&m.Report, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o666),
		m.writeTrace(filepath.Join(dir, "trace.json")))
}

func (m *Merged) writeTrace(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	m.Trace(w)
	return errors.Join(w.Flush(), f.Close())
}

// Trace writes the timeline as Chrome's trace events, which Perfetto reads: a process for each host, a thread for each
// rank, and an arrow for each message.
func (m *Merged) Trace(w io.Writer) {
	hosts := map[string]int{}
	sep := "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
	put := func(format string, args ...any) {
		fmt.Fprintf(w, sep+format, args...)
		sep = ",\n"
	}
	us := func(t int64) string { return fmt.Sprintf("%.3f", float64(t-m.begin)/1e3) }
	host := make([]int, len(m.parts))
	for rank, p := range m.parts {
		n, known := hosts[p.Host]
		if !known {
			n = len(hosts)
			hosts[p.Host] = n
			put(`{"ph":"M","name":"process_name","pid":%d,"args":{"name":%s}}`, n, quoted(p.Host))
		}
		host[rank] = n
		put(`{"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":"rank %d"}}`, n, rank, rank)
		for _, e := range p.Events {
			s := &p.Sites[e.Site]
			put(`{"ph":"X","name":%s,"cat":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%.3f,"args":{"bytes":%d,"peer":%d,"at":%s}}`,
				quoted(s.Op), quoted(s.Kind), n, rank, us(e.Begin), float64(e.End-e.Begin)/1e3, e.Bytes, e.Peer,
				quoted(fmt.Sprintf("%s:%d", filepath.Base(s.File), s.Line)))
		}
	}
	for i, a := range m.arrows {
		put(`{"ph":"s","id":%d,"name":"message","cat":"message","pid":%d,"tid":%d,"ts":%s,"args":{"bytes":%d,"tag":%d}}`,
			i, host[a.from], a.from, us(a.sendBegin), a.bytes, a.tag)
		put(`{"ph":"f","bp":"e","id":%d,"name":"message","cat":"message","pid":%d,"tid":%d,"ts":%s}`, i, host[a.to], a.to,
			us(a.recvEnd))
	}
	fmt.Fprint(w, "\n]}\n")
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}
