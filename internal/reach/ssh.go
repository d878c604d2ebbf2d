package reach

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// SSH is the remote shell if none is named. It must not ask: there may be no user to answer.
var SSH = []string{"ssh", "-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}

// slowExchange begins the names of the key exchange that OpenSSH 9.0 to 9.8 prefer. It takes both ends longer than all
// the rest of a log-in.
const slowExchange = "sntrup761"

// quickly returns options by which ssh comes to a host without the slow key exchange, where that would be taken only
// because no other was asked for: where the configuration of the user or of the site has a list of its own, there is no
// option. No exchange is taken off the list, so a host that has no other is reached as before.
func quickly(ctx context.Context, words []string, host string) []string {
	plain := make(chan []string, 1)
	go func() { plain <- plainExchanges() }()
	configured := exchanges(ctx, append(slices.Clone(words), "-G", host)...)
	list := <-plain
	slow := func(name string) bool { return strings.HasPrefix(name, slowExchange) }
	if len(list) == 0 || !slow(list[0]) || !slices.Equal(list, configured) {
		return nil
	}
	last := 0
	for last < len(list) && slow(list[last]) {
		last++
	}
	if last == len(list) {
		return nil
	}
	return []string{"-o", "KexAlgorithms=" + strings.Join(append(slices.Clone(list[last:]), list[:last]...), ",")}
}

// plainExchanges are the key exchanges of an ssh that reads no configuration.
var plainExchanges = sync.OnceValue(askPlain)

func askPlain() []string {
	return exchanges(context.Background(), SSH[0], "-F", "none", "-G", "localhost")
}

// exchanges are those that a command prints, as ssh -G does; nil: it prints none.
func exchanges(ctx context.Context, words ...string) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdout, cmd.WaitDelay = &out, time.Second
	err := startBy(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err != nil || cmd.Wait() != nil {
		return nil
	}
	for l := range strings.Lines(out.String()) {
		if list, is := strings.CutPrefix(l, "kexalgorithms "); is {
			return strings.Split(strings.TrimSpace(list), ",")
		}
	}
	return nil
}
