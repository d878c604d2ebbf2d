package auth

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A secret that could not be looked up is looked up again, but not by each of the connections that come at once.
func TestSecretLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := 0
		h := rank(1, withTLS, func(h *Handshaker) {
			h.Secret = func() ([]byte, error) {
				switch lookups++; lookups {
				case 1:
					return nil, errors.New("the launcher does not answer")
				case 2:
					return []byte("short"), nil
				}
				return known("a secret of thirty-two bytes ...")()
			}
		})
		for i, want := range []string{"does not answer", "5 bytes", ""} {
			for range 1000 {
				err := h.prepare()
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Fatalf("look-up %d: %v", i+1, err)
				}
			}
			if lookups != i+1 {
				t.Fatalf("%d look-ups, want %d", lookups, i+1)
			}
			time.Sleep(time.Minute)
		}
	})
}
