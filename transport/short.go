package transport

// Short is a message of kind wire.Eager, without flags. It is what Facts.Short returns: one at a time, in registers,
// for which Poll would fill in a Packet.
//
// Between the messages of a peer that Short and Poll return, the order is that of their sending. Payload is the
// transport's again at the next call of Short or Poll, and so are the payloads of an earlier Poll. Where there is more
// than one peer each has its turn, and the caller calls Poll now and then, whatever Short finds. As Poll, Short does
// not end Arm.
type Short struct {
	Source  int32 // rank in the world
	Tag     int32
	Ctx     uint32
	Payload []byte
}

// Found says what Facts.Short has found.
type Found uint8

const (
	FoundNothing Found = iota // Poll would find nothing either
	FoundShort                // the message that is returned
	FoundOther                // perhaps something, which is left to Poll
)
