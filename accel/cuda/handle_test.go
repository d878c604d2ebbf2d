package cuda

import (
	"bytes"
	"testing"
)

func FuzzHandle(f *testing.F) {
	f.Add((&handle{how: byFile, owner: process{7, 8}, fd: 3, label: 4}).encode())
	f.Add((&handle{how: byIPC, owner: process{7, 8}, ipc: ipcHandle{1, 2, 3}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decode(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x is decoded to %+v, and that is %x", b, h, h.encode())
		}
	})
}
