package cuda

import (
	"encoding/binary"
	"errors"
)

// A handle, which another process believes only after it has checked it:
//
//	 0  magic
//	 8  'V': the memory is behind a descriptor of its owner; 'I': it has a handle of the driver
//	 9  unused, 0
//	12  the owner's process number
//	16  its PID namespace
//	24  V: the descriptor, and that of its label; I: unused, 0
//	32  V: the label: 16 random bytes; I: a CUipcMemHandle
//
// The number of a descriptor says nothing about what is behind it: the owner may have freed the memory and exported
// another under the same number. So each has a label, a file with 16 bytes that are in the handle too. The owner closes
// the label first, and then the descriptor. Open takes the label, the descriptor and the label again; if both times the
// label's bytes are those of the handle, the descriptor is the right one.
const (
	magic     = "gorunGPU"
	headLen   = 32
	labelSize = 16
	byFile    = 'V'
	byIPC     = 'I'
)

// process is what a handle says of its owner.
type process struct {
	pid       int
	namespace uint64
}

// ipcHandle is a CUipcMemHandle.
type ipcHandle [64]byte

// handle is a decoded one.
type handle struct {
	how       byte
	owner     process
	fd, label int
	secret    [labelSize]byte // of the label
	ipc       ipcHandle
}

func (h *handle) encode() []byte {
	b := make([]byte, headLen)
	copy(b, magic)
	b[8] = h.how
	binary.LittleEndian.PutUint32(b[12:], uint32(h.owner.pid))
	binary.LittleEndian.PutUint64(b[16:], h.owner.namespace)
	if h.how == byIPC {
		return append(b, h.ipc[:]...)
	}
	binary.LittleEndian.PutUint32(b[24:], uint32(h.fd))
	binary.LittleEndian.PutUint32(b[28:], uint32(h.label))
	return append(b, h.secret[:]...)
}

var errHandle = errors.New("no handle of device memory")

func decode(b []byte) (h handle, err error) {
	if len(b) < headLen || string(b[:8]) != magic || b[9]|b[10]|b[11] != 0 {
		return h, errHandle
	}
	h.how = b[8]
	h.owner.pid = int(int32(binary.LittleEndian.Uint32(b[12:])))
	h.owner.namespace = binary.LittleEndian.Uint64(b[16:])
	h.fd, h.label = int(int32(binary.LittleEndian.Uint32(b[24:]))), int(int32(binary.LittleEndian.Uint32(b[28:])))
	rest := b[headLen:]
	switch {
	case h.owner.pid <= 0 || h.fd < 0 || h.label < 0:
		return h, errHandle
	case h.how == byFile && len(rest) == labelSize:
		copy(h.secret[:], rest)
	case h.how == byIPC && len(rest) == len(h.ipc) && h.fd|h.label == 0:
		copy(h.ipc[:], rest)
	default:
		return h, errHandle
	}
	return h, nil
}
