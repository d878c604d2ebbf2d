package agree

import "math"

// Tags of the messages by which ranks make communicators, on context cid+1. All ranks make them in the same order and
// messages of a pair keep their order, so one tag for each kind is enough. The tags of other collective calls are above
// these (kindTag).
const (
	tagAgree   = iota
	tagFlush   // on ctxFlush: the sender's last message
	tagFlushed // on ctxFlush, to itself: there are no more
	tagPart    // of those ranks that share something new
	TagLeaders // what leaders of two groups say, in any order: see leaderInbox

	tagAsk       = tagAnswers - 1        // of the control context: see vote.go and recovery.go
	tagAnswers   = 1 << (NumberBits - 1) // of the control context, and so many tags: see answerTag
	numbersAsked = 1 << (NumberBits - 1)
)

// NumberBits is how much of a call's number is in the tags of its messages.
const NumberBits = 25

// maxTag is the largest tag of callers.
const maxTag = math.MaxInt32
