package main

import (
	"runtime"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const (
	wantedTag  = 1 // the messages that are timed
	requestTag = 2 // rank 1 to rank 0: send a batch, or stop
	sentTag    = 3 // rank 0 to rank 1: the batch has been sent
	resultTag  = 4
	waitTag    = 1000 // and above: the messages and receives in the way, each with a tag of its own

	messageBytes = 8
	cellTime     = time.Second // for the batches of one cell, unless --time says otherwise
)

// kind is a column: what the receives name. The sender of the messages in the way follows from it.
type kind struct {
	name              string
	anySource, anyTag bool
}

var (
	anyBoth = kind{name: "AnyBoth", anySource: true, anyTag: true}
	kinds   = []kind{{name: "Exact"}, {name: "AnySrc", anySource: true}, {name: "AnyTag", anyTag: true}, anyBoth}
)

// source is what a receive of this kind names for messages of the given sender.
func (k kind) source(sender int) int {
	if k.anySource {
		return mpi.AnySource
	}
	return sender
}

// tag is what a receive of this kind names for messages of the given tag.
func (k kind) tag(tag int) int {
	if k.anyTag {
		return mpi.AnyTag
	}
	return tag
}

// filler is the rank that sends what is in the way: rank 1 to itself where a message of rank 0 would match.
func (k kind) filler() int {
	if k.anyTag && !k.anySource {
		return 1
	}
	return 0
}

// matchesAll reports whether an entry of this kind matches every message, so that nothing can be in its way.
func (k kind) matchesAll() bool { return k.anySource && k.anyTag }

// queue is one rank's side of the measurement at one length. Rank 1 has the queue, measures, and stops rank 0.
type queue struct {
	world    *mpi.Comm
	rank     int
	opts     harness.Options
	length   int
	waiting  []*mpi.Request // receives (posted) or sends (unexpected) in the way
	waitBuf  []byte         // one message's room for each of them
	batch    []*mpi.Request
	batchBuf []byte
	samples  []int64
	warm     *time.Duration // the least warm-up of the next cell
}

func newQueue(world *mpi.Comm, opts harness.Options, warm *time.Duration, length int) *queue {
	q := &queue{world: world, rank: world.Rank(), opts: opts, warm: warm, length: length}
	q.waiting, q.waitBuf = make([]*mpi.Request, length), make([]byte, length*messageBytes)
	q.batch, q.batchBuf = make([]*mpi.Request, opts.Window), make([]byte, opts.Window*messageBytes)
	q.samples = make([]int64, 0, opts.Small.Iterations)
	harness.Touch(q.waitBuf)
	return q
}

func slot(buf []byte, i int) []byte { return buf[i*messageBytes : (i+1)*messageBytes] }

// posted measures arrivals that do not match `length` posted receives of this kind.
func (q *queue) posted(k kind) (float64, error) {
	if k.matchesAll() {
		return q.postedInTurn()
	}
	if q.rank == 0 {
		if err := q.serve(q.sendBatch); err != nil {
			return 0, err
		}
		return 0, q.sendWaiting(k, 0)
	}
	for i := range q.waiting {
		var err error
		q.waiting[i], err = mpi.Irecv(q.world, slot(q.waitBuf, i), k.source(k.filler()), k.tag(waitTag+i))
		if err != nil {
			return 0, err
		}
	}
	us, err := q.measure(func() (time.Duration, error) { return q.awaitBatch(k) })
	if err != nil {
		return 0, err
	}
	if err := q.sendWaiting(k, 1); err != nil {
		return 0, err
	}
	return us, mpi.WaitAll(q.waiting...)
}

// sendWaiting sends the messages that the waiting receives wait for, if rank is their sender.
func (q *queue) sendWaiting(k kind, rank int) error {
	if k.filler() != rank {
		return nil
	}
	for i := range q.length {
		if err := mpi.Send(q.world, slot(q.waitBuf, 0), 1, waitTag+i); err != nil {
			return err
		}
	}
	return nil
}

// awaitBatch is one batch on rank 1: post, request, wait for all.
func (q *queue) awaitBatch(k kind) (time.Duration, error) {
	for i := range q.batch {
		var err error
		q.batch[i], err = mpi.Irecv(q.world, slot(q.batchBuf, i), k.source(0), k.tag(wantedTag))
		if err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if err := q.request(true); err != nil {
		return 0, err
	}
	err := mpi.WaitAll(q.batch...)
	return time.Since(start), err
}

// unexpected measures receives that do not match `length` unexpected messages.
func (q *queue) unexpected(k kind) (float64, error) {
	if k.matchesAll() {
		return q.unexpectedInTurn()
	}
	if k.filler() == q.rank {
		for i := range q.waiting {
			var err error
			q.waiting[i], err = mpi.Isend(q.world, slot(q.waitBuf, i), 1, waitTag+i)
			if err != nil {
				return 0, err
			}
		}
	}
	if q.rank == 0 {
		if err := q.serve(q.sendWholeBatch); err != nil {
			return 0, err
		}
		return 0, q.sent(k)
	}
	us, err := q.measure(func() (time.Duration, error) { return q.receiveBatch(k) })
	if err != nil {
		return 0, err
	}
	for i := range q.length {
		if _, err := mpi.Recv(q.world, slot(q.batchBuf, 0), k.source(k.filler()), k.tag(waitTag+i)); err != nil {
			return 0, err
		}
	}
	return us, q.sent(k)
}

// sent waits for the sends of what was in the way, on the rank that started them.
func (q *queue) sent(k kind) error {
	if k.filler() != q.rank {
		return nil
	}
	return mpi.WaitAll(q.waiting...)
}

// receiveBatch is one batch on rank 1: request it, wait until it has come, then receive it.
func (q *queue) receiveBatch(k kind) (time.Duration, error) {
	if err := q.request(true); err != nil {
		return 0, err
	}
	if _, err := mpi.Recv(q.world, slot(q.batchBuf, 0), 0, sentTag); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range q.batch {
		if _, err := mpi.Recv(q.world, slot(q.batchBuf, i), k.source(0), k.tag(wantedTag)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// measure is rank 1: it runs batches until there are enough, stops rank 0, and returns the median, in microseconds
// for one message.
func (q *queue) measure(batch func() (time.Duration, error)) (float64, error) {
	runtime.GC() // no collection of the setting-up while the clock runs
	most := cellTime
	if q.opts.Time > 0 {
		most = q.opts.Time
	}
	for i, begin := 0, time.Now(); i < q.opts.Small.Warmup && time.Since(begin) < most/4 ||
		time.Since(begin) < *q.warm; i++ {
		if _, err := batch(); err != nil {
			return 0, err
		}
	}
	*q.warm = 0
	q.samples = q.samples[:0]
	for begin := time.Now(); len(q.samples) < q.opts.Small.Iterations; {
		took, err := batch()
		if err != nil {
			return 0, err
		}
		q.samples = append(q.samples, int64(took))
		if time.Since(begin) > most {
			break
		}
	}
	median := harness.Summarize(q.samples).P50
	return float64(median) / 1e3 / float64(len(q.batch)), q.request(false)
}

// request asks rank 0 for a batch, or stops it.
func (q *queue) request(more bool) error {
	var word [1]byte
	if more {
		word[0] = 1
	}
	return mpi.Send(q.world, word[:], 0, requestTag)
}

// serve is rank 0: it sends a batch for each request until rank 1 stops it.
func (q *queue) serve(batch func() error) error {
	var word [1]byte
	for {
		if _, err := mpi.Recv(q.world, word[:], 1, requestTag); err != nil || word[0] == 0 {
			return err
		}
		if err := batch(); err != nil {
			return err
		}
	}
}

func (q *queue) sendBatch() error {
	if err := q.startBatch(); err != nil {
		return err
	}
	return mpi.WaitAll(q.batch...)
}

// sendWholeBatch sends a batch that rank 1 receives only after the message that follows it; hence nonblocking.
func (q *queue) sendWholeBatch() error {
	if err := q.startBatch(); err != nil {
		return err
	}
	if err := q.sendLast(); err != nil {
		return err
	}
	return mpi.WaitAll(q.batch...)
}

func (q *queue) startBatch() (err error) {
	for i := range q.batch {
		if q.batch[i], err = mpi.Isend(q.world, slot(q.batchBuf, i), 1, wantedTag); err != nil {
			return err
		}
	}
	return nil
}

// sendLast tells rank 1 that the batch before it has been sent.
func (q *queue) sendLast() error { return mpi.Send(q.world, []byte{1}, 1, sentTag) }
