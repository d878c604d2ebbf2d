package slurm

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/bootstrap/rank0"
)

// In an exchange each side sends one line:
//
//	rank → rank 0    gorun-slurm-1 CREDENTIAL    with in it: ask STEP RANK NONCE
//	rank 0 → rank    gorun-slurm-1 CREDENTIAL    with in it: answer STEP RANK NONCE KEY PORT
//
// Only processes of the user can open the credentials, and munge says that they were made by one. The nonce is the
// rank's, so that an answer fits one question. At PORT rank 0 serves the ranks that know KEY.
const (
	greeting = "gorun-slurm-1 "
	lineMax  = 8 << 10
	keySize  = 32
	// exchangeLimit is how long one exchange may take.
	exchangeLimit = 10 * time.Second
	// atOnce is how many exchanges may be under way, each of which has programs of munge run.
	atOnce = 32
)

// Options of Join.
type Options struct {
	Env         func(name string) string
	PeerTimeout time.Duration
	Ports       string // GORUN_TCP_PORTS
	Warn        func(msg string, args ...any)
}

// Join meets the other ranks of the step.
func (s Step) Join(ctx context.Context, o Options) (*rank0.Member, error) {
	lo, hi, err := parsePorts(o.Ports)
	if err != nil {
		return nil, err
	}
	d := keyService{Step: s, munge: newMunge(o.Env), warn: o.Warn}
	if _, err := d.munge.seal(ctx, "try"); err != nil {
		return nil, fmt.Errorf("srun --mpi=none leaves it to the ranks to find each other, and munge has to prove "+
			"that they are of one user, which does not work on this node (%w): start it with srun --mpi=pmi2, "+
			"or have munge installed and munged running on all nodes", err)
	}
	j := rank0.Job{Rank: s.Rank, Size: s.Size, Local: s.Local, Name: "slurm." + s.ID, Launcher: "slurm",
		PeerTimeout: o.PeerTimeout, Warn: o.Warn}
	if s.Rank == 0 {
		return d.lead(ctx, j, lo, hi)
	}
	return d.follow(ctx, j, s.ports(lo, hi))
}

// parsePorts reads a range such as 40000-40999; transport/tcp has checked it before it listens there, too.
func parsePorts(text string) (lo, hi int, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return 0, 0, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	lo, err1 := strconv.Atoi(strings.TrimSpace(low))
	hi, err2 := strconv.Atoi(strings.TrimSpace(high))
	if err1 != nil || err2 != nil || lo < 1 || hi < lo || hi > 65535 {
		return 0, 0, fmt.Errorf("GORUN_TCP_PORTS=%.40q is no range of ports: write it like 20000-20999", text)
	}
	return lo, hi, nil
}

// keyService gives ranks that ask rank 0 the job's key.
type keyService struct {
	Step
	munge munge
	warn  func(msg string, args ...any)
	key   []byte // at rank 0
	port  int    // at rank 0, of the wire-up
}

// lead serves the key and joins as rank 0.
func (d *keyService) lead(ctx context.Context, j rank0.Job, lo, hi int) (*rank0.Member, error) {
	ports := d.ports(lo, hi)
	ln, err := listen(ports)
	if err != nil {
		return nil, err
	}
	var rest []int
	if lo != 0 {
		rest = ports
	}
	wireUp, err := listen(rest)
	if err != nil {
		ln.Close()
		return nil, err
	}
	d.key = make([]byte, keySize)
	rand.Read(d.key)
	d.port = wireUp.Addr().(*net.TCPAddr).Port
	a := auth.Serve(ln, auth.Options{Name: "rendezvous", Pending: atOnce, Accept: d.accept, Log: d.warn})
	j.Key, j.With = d.key, closer{a}
	m, err := rank0.Lead(ctx, wireUp, j)
	if err != nil {
		a.Close()
	}
	return m, err
}

type closer struct{ *auth.Acceptor }

// Close ends the exchanges.
func (c closer) Close() error {
	c.Acceptor.Close()
	return nil
}

// listen takes the first port that is free; of none, any.
func listen(ports []int) (net.Listener, error) {
	if ports == nil {
		ports = []int{0}
	}
	var last error
	for _, p := range ports {
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(p))
		if err == nil {
			return ln, nil
		}
		last = err
	}
	return nil, fmt.Errorf("rank 0 finds no free port for the rendezvous among %d (GORUN_TCP_PORTS=LOW-HIGH names "+
		"others): %w", len(ports), last)
}

// gone means that the exchange is over, and there is no session to go on with.
var gone = &auth.Error{Why: auth.Gone}

// accept is rank 0's side of an exchange.
func (d *keyService) accept(conn net.Conn) (*auth.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), exchangeLimit)
	defer cancel()
	limit, _ := ctx.Deadline()
	conn.SetDeadline(limit)
	credential, err := hear(conn)
	if err != nil {
		return nil, &auth.Error{Why: auth.NotGorun}
	}
	question, err := d.munge.open(ctx, credential)
	if errors.Is(err, errNotOurs) {
		return nil, &auth.Error{Why: auth.OtherUser}
	}
	rank, nonce, good := parseQuestion(question, d.ID, d.Size)
	if err != nil || !good {
		return nil, &auth.Error{Why: auth.NotGorun}
	}
	answer, err := d.munge.seal(ctx, fmt.Sprintf("answer %s %d %s %x %d", d.ID, rank, nonce, d.key, d.port))
	if err == nil {
		err = say(conn, answer)
	}
	if err != nil {
		d.warn("the rendezvous could not answer a rank", "rank", rank, "since", err)
	}
	return nil, gone
}

// follow asks rank 0 for the key, again and again until it is there.
func (d *keyService) follow(ctx context.Context, j rank0.Job, ports []int) (*rank0.Member, error) {
	var last error
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for _, p := range ports {
			m, err := d.ask(ctx, j, net.JoinHostPort(d.First, strconv.Itoa(p)))
			if err == nil {
				return m, nil
			}
			if ctx.Err() == nil {
				last = err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d does not reach rank 0 at %s, ports %v (%w): %w", d.Rank, d.First, ports,
				last, context.Cause(ctx))
		}
	}
}

// ask is one exchange with the key service at addr, and what follows.
func (d *keyService) ask(ctx context.Context, j rank0.Job, addr string) (*rank0.Member, error) {
	short, cancel := context.WithTimeout(ctx, exchangeLimit)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(short, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	limit, _ := short.Deadline()
	conn.SetDeadline(limit)
	nonce := rand.Text()
	credential, err := d.munge.seal(short, fmt.Sprintf("ask %s %d %s", d.ID, d.Rank, nonce))
	if err != nil {
		return nil, err
	}
	if err := say(conn, credential); err != nil {
		return nil, err
	}
	if credential, err = hear(conn); err != nil {
		return nil, err
	}
	answer, err := d.munge.open(short, credential)
	if err != nil {
		return nil, err
	}
	key, port, good := parseAnswer(answer, fmt.Sprintf("answer %s %d %s ", d.ID, d.Rank, nonce))
	if !good {
		return nil, errors.New("the answer does not fit the question")
	}
	j.Key = key
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return rank0.Follow(ctx, net.JoinHostPort(host, strconv.Itoa(port)), j)
}

// say writes the line of one side.
func say(w io.Writer, credential string) error {
	_, err := io.WriteString(w, greeting+credential+"\n")
	return err
}

// hear reads the line of the other side.
func hear(r io.Reader) (credential string, err error) {
	line, err := bufio.NewReaderSize(io.LimitReader(r, lineMax), lineMax).ReadString('\n')
	if err != nil {
		return "", err
	}
	credential, ok := strings.CutPrefix(strings.TrimSpace(line), greeting)
	if !ok {
		return "", fmt.Errorf("%.40q is no word of the rendezvous", line)
	}
	return credential, nil
}

// parseQuestion reads what a rank asks.
func parseQuestion(text, step string, size int) (rank int, nonce string, good bool) {
	f := strings.Split(text, " ")
	if len(f) != 4 || f[0] != "ask" || f[1] != step || len(f[3]) < 16 || len(f[3]) > 64 {
		return 0, "", false
	}
	rank, err := strconv.Atoi(f[2])
	return rank, f[3], err == nil && rank > 0 && rank < size
}

// parseAnswer reads what follows the words that the answer must begin with.
func parseAnswer(text, words string) (key []byte, port int, good bool) {
	rest, ok := strings.CutPrefix(text, words)
	digits, number, _ := strings.Cut(rest, " ")
	key, err1 := hex.DecodeString(digits)
	port, err2 := strconv.Atoi(number)
	return key, port, ok && err1 == nil && len(key) == keySize && err2 == nil && port > 0 && port < 1<<16
}
