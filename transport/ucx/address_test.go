package ucx

import (
	"encoding/json"
	"strings"
	"testing"
)

// What a peer publishes may be anything: only a card of the same release with an address is taken.
func FuzzReadCard(f *testing.F) {
	const version = "1.13.1"
	f.Add(card{version, "host", 7, "1", []byte{1}}.encode())
	f.Add(card{"1.13.99", "", -1, "", []byte{0}}.encode())
	f.Add(card{"1.14.0", "host", 7, "1", []byte{1}}.encode())
	f.Add(card{UCX: version}.encode())
	f.Add([]byte(`{"UCX":"1.13","Address":"AA=="}`))
	f.Add([]byte(`{"UCX":1.13}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := readCard(b, version)
		if err != nil {
			if len(err.Error()) > 300+len(b) {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if !json.Valid(b) || len(c.Address) == 0 || c.UCX != "1.13" && !strings.HasPrefix(c.UCX, "1.13.") {
			t.Errorf("%q is taken: %+v", b, c)
		}
		if again, err := readCard(c.encode(), version); err != nil || again.PID != c.PID ||
			string(again.Address) != string(c.Address) {
			t.Errorf("%+v is not what it was encoded from, %+v: %v", again, c, err)
		}
	})
}
