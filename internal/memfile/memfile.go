package memfile

import (
	"encoding/binary"
	"errors"
)

const (
	magic      = "gorunMEM"
	secretSize = 16
	handleSize = len(magic) + 4 + 4 + 8 + 8 + secretSize
	// page stands before the memory. It begins with the secret.
	page = 4096
)

// handle is what another process needs.
type handle struct {
	pid, fd   int
	namespace uint64 // of process numbers
	size      int64  // bytes that may be mapped, the page before them included
	secret    [secretSize]byte
}

var errHandle = errors.New("no handle of memory")

func (h *handle) encode() []byte {
	b := append(make([]byte, 0, handleSize), magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.pid))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.fd))
	b = binary.LittleEndian.AppendUint64(b, h.namespace)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	return append(b, h.secret[:]...)
}

func decode(b []byte) (h handle, err error) {
	if len(b) != handleSize || string(b[:len(magic)]) != magic {
		return h, errHandle
	}
	b = b[len(magic):]
	h.pid, h.fd = int(int32(binary.LittleEndian.Uint32(b))), int(int32(binary.LittleEndian.Uint32(b[4:])))
	h.namespace, h.size = binary.LittleEndian.Uint64(b[8:]), int64(binary.LittleEndian.Uint64(b[16:]))
	copy(h.secret[:], b[24:])
	if h.pid <= 0 || h.fd < 0 || h.size <= page || h.size > 1<<32 {
		return h, errHandle
	}
	return h, nil
}

// Memory is such memory as one process has it.
type Memory struct {
	mapping []byte // the page and the memory
	fd      int    // of the process that has made it; -1: it is another's
	handle  []byte
}

// Bytes is the memory. It begins with a page.
func (m *Memory) Bytes() []byte { return m.mapping[page:] }

// Handle is what Open in another process needs.
func (m *Memory) Handle() []byte { return m.handle }
