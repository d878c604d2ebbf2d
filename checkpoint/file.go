package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A file has a copy, and its SHA-256. Each rank has two files, which it writes in turn as it does its slots.

func (s *Store) path(slot int) string {
	return filepath.Join(s.dir, fmt.Sprintf("rank-%05d.%d", s.comm.Rank(), slot))
}

// write replaces the file of a slot as a whole: after a crash at any time there is the old one or the new one.
func (s *Store) write(from *slot) (err error) {
	at := 0
	if from == &s.own.slots[1] {
		at = 1
	}
	f, err := os.CreateTemp(s.dir, filepath.Base(s.path(at))+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	sum := sha256.Sum256(from.data)
	_, err = f.Write(from.data)
	if err == nil {
		_, err = f.Write(sum[:])
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), s.path(at)); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// read fills the slots from this rank's files. A file that is damaged, or is not this rank's, is as good as none.
func (s *Store) read() {
	for i := range s.own.slots {
		b, err := os.ReadFile(s.path(i))
		if err != nil || len(b) < sha256.Size {
			continue
		}
		data, sum := b[:len(b)-sha256.Size], sha256.Sum256(b[:len(b)-sha256.Size])
		h, ok := headerOf(data)
		if ok && bytes.Equal(sum[:], b[len(data):]) && int(h.Owner) == s.comm.Rank() {
			s.own.slots[i] = slot{header: h, whole: true, data: data}
		}
	}
}
