package pml

import (
	"context"
	"errors"
	"testing"
)

// A proxy ends as its request does, and each has the result once. A context ends the proxy and leaves the request.
func TestProxy(t *testing.T) {
	watchdog(t)
	pairs(t, func(t *testing.T, e0, e1 *Engine) {
		for _, n := range []int{8, 1 << 20} {
			in, out := make([]byte, n), make([]byte, n)
			for i := range out {
				out[i] = byte(i) | 1
			}
			cc, cancel := context.WithCancel(context.Background())
			got, sent := e0.Irecv(nil, 1, 1, 5, in), e1.Isend(nil, 1, 0, 5, out, Synchronous)
			proxies := []*Request{got.Proxy(nil, nil), sent.Proxy(cc, nil)}
			if err := proxies[0].Cancel(); n > 8 && !errors.Is(err, ErrRequest) {
				t.Errorf("a proxy is cancelled: %v", err)
			}
			for i, r := range []*Request{got, sent} {
				if err := r.Await(nil); err != nil {
					t.Fatal(err)
				}
				first, err := proxies[i].Wait()
				second, err2 := r.Wait()
				if err != nil || err2 != nil || first != second {
					t.Fatalf("the proxy ends with %+v, %v and its request with %+v, %v", first, err, second, err2)
				}
				for _, again := range []*Request{proxies[i], r} {
					if _, err := again.Wait(); !errors.Is(err, ErrRequest) {
						t.Errorf("a result is there twice: %v", err)
					}
				}
			}
			if string(in) != string(out) {
				t.Error("other bytes")
			}

			clear(in)
			got = e0.Irecv(nil, 1, 1, 5, in)
			given := got.Proxy(cc, nil)
			cancel()
			if _, err := given.Wait(); !errors.Is(err, context.Canceled) {
				t.Errorf("the proxy ends with %v", err)
			}
			if err := got.Await(cc); !errors.Is(err, context.Canceled) {
				t.Errorf("Await ends with %v", err)
			}
			if err := e1.Send(nil, 1, 0, 5, out, Standard); err != nil {
				t.Fatal(err)
			}
			st, err := got.Wait()
			if err != nil || st.Bytes != int64(n) || string(in) != string(out) {
				t.Errorf("the request ends with %+v, %v", st, err)
			}
		}
		late := e0.Completed(Status{Bytes: 7}).Proxy(nil, nil)
		if done, st, err := late.Test(); !done || err != nil || st.Bytes != 7 {
			t.Errorf("a proxy of what is done: %v, %+v, %v", done, st, err)
		}
		got := e0.Irecv(nil, 1, 1, 5, nil)
		given := got.Proxy(nil, nil)
		if e0.Pending() != 2 {
			t.Errorf("%d operations are under way", e0.Pending())
		}
		why := errors.New("the test ends it")
		e0.Fail(why)
		for _, r := range []*Request{given, got} {
			if _, err := r.Wait(); !errors.Is(err, why) {
				t.Errorf("it ends with %v", err)
			}
		}
	})
}
