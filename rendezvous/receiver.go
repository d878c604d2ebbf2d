package rendezvous

import "github.com/gorun-mpi/mpi/internal/wire"

// Receiver is the receiving end of one transfer. Who may write to the buffer:
//
//	idle        the sender, to the back, if Back says so
//	reading     the link, to the piece of a READ from ReadStarted to its end; and the sender as above
//	streaming   the caller of OnData; the link, if it places fragments; and the sender as above
//
// From Finish on it is the user's again; after Abandon when no READ is under way and the sender cannot write.
type Receiver struct {
	Trial // what this transfer teaches

	Source   Region // where the sender has the message
	readable bool   // and it can be READ; no longer, once that has failed
	noFIN    bool   // the sender does not wait for FIN after a stream

	size int64 // of the message
	// want is how many bytes to fetch from the beginning: of the message, or the buffer if that is shorter; with split,
	// of its front.
	want        int64
	have        int64 // bytes in place, from the beginning. have <= want
	piece       int64 // bytes of one READ
	asked       int64 // bytes of the READ that is next or under way; 0: none. have+asked <= want
	started     bool  // it is under way
	back        Region
	own, remote uint64 // the numbers of the two ends
	gen         int32  // streams begun; fragments of an earlier one are out of date
	tookOver    bool   // READs go on with a stream that has stalled
	phase       phase
	left        int64 // of a message in parts: bytes that have not been asked for
	atFront     What  // what happens when want is here and back is not
}

type phase uint8

const (
	idle phase = iota // not begun; or the front is here
	reading
	streaming
)

// Init begins a transfer: the message of rts is matched with a buffer of room bytes. own is the number of this end.
func (r *Receiver) Init(rts *wire.Header, room int64, own uint64) {
	size := int64(rts.Len)
	*r = Receiver{size: size, want: min(size, room), own: own, remote: rts.ID,
		readable: rts.Flags&wire.Readable != 0, noFIN: rts.Flags&wire.NoFIN != 0,
		Source: Region{rts.Addr, rts.Key, size, true}}
}

// Begin moves the payload by s, in READs of at most piece. back is the end of the buffer, where the sender may write:
// with Split only, and not longer than the message.
func (r *Receiver) Begin(s *Scheme, piece int64, back Region) Action {
	r.piece, r.back = piece, back
	if r.want == 0 {
		return r.finish()
	}
	return s.begin(r)
}

// Want is how much of the message there is room for.
func (r *Receiver) Want() int64 { return min(r.want+r.back.Len, r.size) }

// Size of the message.
func (r *Receiver) Size() int64 { return r.size }

// Have is how many bytes are in place, from the beginning.
func (r *Receiver) Have() int64 { return r.have }

// Readable reports whether the sender's memory can be read, as far as is known.
func (r *Receiver) Readable() bool { return r.readable }

// NotReadable notes that the sender's memory cannot be read, whatever the sender says.
func (r *Receiver) NotReadable() { r.readable = false }

// Reading reports whether there is a READ to do or under way.
func (r *Receiver) Reading() bool { return r.phase == reading && r.asked > 0 }

// Streaming reports whether fragments are expected.
func (r *Receiver) Streaming() bool { return r.phase == streaming }

// Back is where the sender may write, if it may.
func (r *Receiver) Back() Region { return r.back }

// ReadUnderWay reports whether a READ is under way: the link writes to the buffer until OnGetDone or OnGetFailed, also
// after Abandon.
func (r *Receiver) ReadUnderWay() bool { return r.started }

// Abandon ends the transfer: its peer has failed.
func (r *Receiver) Abandon() {
	r.Trial.end(r.size, false)
	r.phase = idle
}

// finish is called when the front is here. The transfer is over unless the back is still being written.
func (r *Receiver) finish() Action {
	ended := r.phase
	r.phase = idle
	if r.back.Len > 0 {
		return Action{Do: r.atFront}
	}
	r.Trial.end(r.size, true)
	if r.noFIN && ended == streaming {
		return Action{Do: Finish}
	}
	return Action{Do: Finish, Header: wire.Header{Kind: wire.FIN, ID: r.remote}}
}
