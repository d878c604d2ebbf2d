/* The limit for TCP: the ping-pong of benchmarks/latency, the windows of benchmarks/bw and the rate of
 * benchmarks/mbw_mr over one bare socket that both sides spin on, without any MPI and without checks.
 *
 *     hostrun -hosts 2 -pin -- ./socket latency|bw|mbw_mr ADDRESS:PORT [-m MIN:MAX] [-i N] [-x N] [-W N] [--time S]
 *
 * The rank is in PMI_ID: 0 listens at the address, which is IPv4 or IPv6 (in brackets), 1 connects to it. */
#include "options.h"
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define CHUNK (64 << 10) /* one recv takes several small messages */
#define TIMEOUT 10       /* seconds for the other rank to come */

static inline void abort_all(void) {}

static int rank; /* 0 or 1 */
static int conn; /* to the other rank */

static void need(int ok, const char *what)
{
    if (!ok)
        fail(what, strerror(errno));
}

/* Both spin: the kernel is asked again until it has room, or bytes. */
static void send_all(const char *buf, size_t n)
{
    while (n > 0) {
        ssize_t did = send(conn, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        need(did >= 0 || errno == EAGAIN || errno == EINTR, "send");
        if (did > 0)
            buf += did, n -= did;
    }
}

/* Receives n bytes in all, over and over into the `room` bytes at buf. */
static void recv_all(char *buf, size_t room, size_t n)
{
    for (size_t at = 0; n > 0;) {
        ssize_t did = recv(conn, buf + at, n < room - at ? n : room - at, MSG_DONTWAIT);
        if (did == 0)
            fail("recv", "the other rank has gone");
        need(did > 0 || errno == EAGAIN || errno == EINTR, "recv");
        if (did > 0)
            n -= did, at = at + did == room ? 0 : at + did;
    }
}

static int listen_at(const struct addrinfo *a)
{
    int one = 1, at = socket(a->ai_family, SOCK_STREAM, 0);
    need(at >= 0, "socket");
    setsockopt(at, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    need(bind(at, a->ai_addr, a->ai_addrlen) == 0 && listen(at, 1) == 0, "listening");
    struct timeval timeout = {.tv_sec = TIMEOUT}; /* for accept */
    setsockopt(at, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    int got = accept(at, NULL, NULL);
    need(got >= 0, "waiting for the other rank");
    close(at);
    return got;
}

static int dial(const struct addrinfo *a)
{
    int64_t until = now_ns() + (int64_t)TIMEOUT * 1000000000;
    for (;;) {
        int to = socket(a->ai_family, SOCK_STREAM, 0);
        need(to >= 0, "socket");
        if (connect(to, a->ai_addr, a->ai_addrlen) == 0)
            return to;
        need(now_ns() < until, "connecting to the other rank");
        close(to);
        usleep(1000); /* it may not listen yet */
    }
}

/* ADDRESS:PORT, numbers; an IPv6 address in brackets. */
static struct addrinfo *resolve(char *where)
{
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    char *colon = strrchr(where, ':');
    if (colon == NULL)
        fail("wanted ADDRESS:PORT, got", where);
    *colon = '\0';
    if (*where == '[' && colon[-1] == ']')
        where++, colon[-1] = '\0';
    int err = getaddrinfo(where, colon + 1, &hints, &found);
    if (err != 0)
        fail(where, gai_strerror(err));
    return found;
}

static void join(char *where)
{
    const char *id = getenv("PMI_ID");
    if (id == NULL || (strcmp(id, "0") != 0 && strcmp(id, "1") != 0))
        fail("PMI_ID must be 0 or 1, and is", id == NULL ? "not set" : id);
    rank = *id - '0';
    struct addrinfo *a = resolve(where);
    conn = rank == 0 ? listen_at(a) : dial(a);
    freeaddrinfo(a);
    int one = 1;
    need(setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
}

static inline long agree(long n)
{
    if (rank == 0)
        send_all((const char *)&n, sizeof n);
    else
        recv_all((char *)&n, sizeof n, sizeof n);
    return n;
}

/* One size of one rank. */
typedef struct {
    char *buf;
    long size, window;
} figures;

/* n round trips. */
static void play(void *side, long n)
{
    char *buf = ((figures *)side)->buf;
    long size = ((figures *)side)->size;
    for (long i = 0; i < n; i++) {
        if (rank == 0)
            send_all(buf, size);
        recv_all(buf, size, size);
        if (rank == 1)
            send_all(buf, size);
    }
}

/* n windows from 0 to 1, each of them answered: a send for every message, as in an MPI without aggregation. */
static void stream(void *side, long n)
{
    char answer[4] = {0}, *buf = ((figures *)side)->buf;
    long size = ((figures *)side)->size, window = ((figures *)side)->window;
    for (long i = 0; i < n; i++) {
        if (rank == 1) {
            recv_all(buf, size > CHUNK ? size : CHUNK, (size_t)size * window);
            send_all(answer, sizeof answer);
            continue;
        }
        for (long j = 0; j < window; j++)
            send_all(buf, size);
        recv_all(answer, sizeof answer, sizeof answer);
    }
}

/* The mean time of a round in nanoseconds. */
static double mean_ns(options *o, figures *f, rounds play)
{
    long n = settle(o, f->size, play, f);
    int64_t start = now_ns();
    play(f, n);
    return (double)(now_ns() - start) / n;
}

static void measure(options *o, figures *f, int plays, int rate)
{
    double ns = mean_ns(o, f, plays ? play : stream);
    if (rank != 0)
        return;
    if (plays)
        print_value(f->size, ns / 1e3 / 2);
    else if (rate)
        print_rates(f->size, f->window, ns);
    else
        print_value(f->size, (double)f->window * f->size * 1e3 / ns);
}

static void heads(const char *what)
{
    if (strcmp(what, "latency") == 0) {
        header("Socket Latency Test", "Size", "Avg Latency(us)");
    } else if (strcmp(what, "bw") == 0) {
        header("Socket Bandwidth Test", "Size", "Bandwidth (MB/s)");
    } else {
        title("Socket Message Rate Test");
        columns("Size", "MB/s", "Messages/s", NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        fail(argv[0], "wanted latency|bw|mbw_mr ADDRESS:PORT [options]");
    const char *what = argv[1];
    int plays = strcmp(what, "latency") == 0, rate = strcmp(what, "mbw_mr") == 0;
    if (!plays && !rate && strcmp(what, "bw") != 0)
        fail("wanted latency, bw or mbw_mr, got", what);
    options o = plays ? latency_options() : bandwidth_options();
    char *where = argv[2];
    argv[2] = argv[0];
    parse(argc - 2, argv + 2, &o);
    if (o.min == 0)
        fail("-m 0", "an empty message is nothing on a socket");
    join(where);
    char *buf = touched(o.max > CHUNK ? o.max : CHUNK);
    if (rank == 0)
        heads(what);
    figures f = {.buf = buf, .window = o.window};
    for (f.size = o.min; f.size >= 0; f.size = next_size(&o, f.size, 2))
        measure(&o, &f, plays, rate);
    close(conn);
    return 0;
}
