package transport

// Short is the envelope of a message of kind wire.Eager, without flags. Facts.Short returns it and the payload: one
// message at a time, in registers, for which Poll would fill in a Packet.
//
// Short and Poll together return the messages of a peer in the order in which they were sent. The payload is the
// transport's again at the next call of Short or Poll, and so are the payloads of an earlier Poll. Where there is more
// than one peer each has its turn, and the caller calls Poll now and then, whatever Short finds. As Poll, Short does
// not end Arm.
type Short struct {
	Source int32 // rank in the world
	Tag    int32
	Ctx    uint32
}

// Found says what Facts.Short has found.
type Found uint8

const (
	FoundNothing Found = iota // a Poll in place of this call would have returned 0: also no Down, no Room
	FoundShort                // the message that is returned
	FoundOther                // perhaps something, which is left to Poll
)
