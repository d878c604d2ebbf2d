package stdio

import (
	"syscall"

	"github.com/gorun-mpi/mpi/internal/frames"
)

// NewLinkOutlet makes an Outlet that leads to the head. A piece of a line that goes on is a frame of kind part, a piece
// with the end of a line is a frame of kind last.
func NewLinkOutlet(to *frames.Link, part, last frames.Kind, coloured bool) *Outlet {
	return NewOutlet(linkWriter{to, part, last}, coloured, func(error) {})
}

type linkWriter struct {
	link       *frames.Link
	part, last frames.Kind
}

func (w linkWriter) Write(b []byte) (int, error) {
	last := w.last
	if len(b) >= maxWrite && b[len(b)-1] != '\n' {
		last = w.part // of a long line
	}
	if err := w.link.SendBulk(w.part, last, b); err != nil {
		return 0, syscall.EPIPE // nothing more is taken
	}
	return len(b), nil
}

// Merge carries the output of a host, which comes in frames, to the outlets, a whole line at a time. It returns when no
// more comes. room tells the host how much more it may send.
func (s *Streams) Merge(in *Intake, room func(int)) {
	var lines [2][]byte
	in.Run(func(f frames.Frame) {
		i, to, part := 0, s.Stdout, f.Kind == frames.StdoutPart || f.Kind == frames.StderrPart
		if f.Kind == frames.Stderr || f.Kind == frames.StderrPart {
			i, to = 1, s.Stderr
		}
		lines[i] = append(lines[i], f.Body...)
		if !part || len(lines[i]) > 2*maxLine {
			to.Put(lines[i])
			lines[i] = lines[i][:0]
		}
	}, room)
	s.Stdout.Put(lines[0])
	s.Stderr.Put(lines[1])
}
