package pml

// Stats are the counters of one rank since it joined. Counts are of messages, receives or sends; sizes are bytes.
type Stats struct {
	EagerSent        uint64 // messages sent whole
	RendezvousSent   uint64 // messages announced first
	BytesSent        uint64 // payload of all messages
	MatchedOnArrival uint64 // messages whose receive was posted
	Matched          uint64 // messages that waited in the unexpected queue
	Gets             uint64 // receives begun by READ
	Splits           uint64 // receives begun by READ, with the sender writing the other half
	Streams          uint64 // sends that were asked to stream
	TakenOver        uint64 // streams that the receiver finished by READ
	GetsFailed       uint64 // READs that failed and were replaced by a stream
	Refused          uint64 // connections closed because the other end did not prove to be of the job

	// Where a device matches tags (GORUN_TM).
	OffloadMatches   uint64    // messages that the device has matched; they are in MatchedOnArrival too
	SoftwareMatches  uint64    // messages of the same peers that software has
	OffloadPosted    uint64    // receives that the device was given
	OffloadTakenBack uint64    // receives that it gave back: cancelled, or matched by software
	OffloadFallbacks Fallbacks // receives that it was not given, by reason

	UnexpectedBytes int64 // now: envelopes and payloads that wait for a match
	UnexpectedPeak  int64 // the greatest UnexpectedBytes so far
	Posted          int   // receives waiting now
	Unexpected      int   // messages waiting now
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	e.lock()
	s := e.path.count(e.stats)
	e.unlock()
	if e.cfg.Net != nil {
		if refused := e.cfg.Net.Facts().Refused; refused != nil {
			s.Refused = refused()
		}
	}
	return s
}
