package mpi

import (
	"fmt"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		done <- RunLocal(4, func(w *Comm) error {
			for _, n := range []int{0, 1, 8, 100, 1000, 10000, 100000, 3000000} {
				out, in := make([]byte, n), make([]byte, n)
				for i := range out {
					out[i] = byte(i + w.Rank())
				}
				r, l := (w.Rank()+1)%4, (w.Rank()+3)%4
				st, err := Sendrecv(w, out, r, n%100, in, l, n%100)
				if err != nil {
					return err
				}
				if st.Source != l || st.Bytes != int64(n) {
					return fmt.Errorf("%d: %+v", n, st)
				}
				for i := range in {
					if in[i] != byte(i+l) {
						return fmt.Errorf("%d: byte %d", n, i)
					}
				}
				if err := Barrier(w); err != nil {
					return err
				}
			}
			d, err := w.Dup()
			if err != nil {
				return err
			}
			if w.Rank() == 0 {
				return SendObject(d, map[string]int{"a": 1}, 1, 5)
			}
			if w.Rank() == 1 {
				v, _, err := RecvObject[map[string]int](d, AnySource, AnyTag)
				if err != nil || v["a"] != 1 {
					return fmt.Errorf("%v %v", v, err)
				}
			}
			return Send(w, []int{1}, w.Rank(), 3)
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		panic("hangs")
	}
}
