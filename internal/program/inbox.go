package program

import "os"

// Inbox takes the pieces of programs that [Send] has read on another host, one program after another.
type Inbox struct {
	open  *Program // the program of which pieces come; nil: none
	file  *os.File // of open, for writing
	built []*Program
}

// Take takes the next piece. An empty piece ends a program.
func (in *Inbox) Take(piece []byte) (err error) {
	if in.open == nil {
		in.open = &Program{Package: "program"}
		target, err := in.open.target()
		if err != nil {
			return err
		}
		if in.file, err = os.OpenFile(target, os.O_WRONLY|os.O_CREATE, 0o700); err != nil {
			return err
		}
	}
	if len(piece) > 0 {
		_, err = in.file.Write(piece)
		return err
	}
	if err = in.file.Close(); err == nil { // no file can be run that is open for writing
		err = in.open.check()
	}
	in.built, in.open = append(in.built, in.open), nil
	return err
}

// Partial reports whether the end of a program has not come.
func (in *Inbox) Partial() bool { return in.open != nil }

// Path returns the path of the i-th program, if it has come.
func (in *Inbox) Path(i int) (path string, ok bool) {
	if i >= len(in.built) {
		return "", false
	}
	return in.built[i].Path, true
}

// Close gives up all programs, and one that has come in part.
func (in *Inbox) Close() {
	if in.open != nil {
		in.file.Close()
		in.open.Close()
	}
	for _, p := range in.built {
		p.Close()
	}
}
