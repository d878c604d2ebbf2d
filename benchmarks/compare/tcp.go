package main

// tcpPlan is what is measured between two hosts, one rank on each, over TCP. Times are such that a round of all of it
// takes about a minute and a half.
func tcpPlan() []measurement {
	all := []measurement{tcpLatency(), tcpBandwidth(), tcpRate(), tcpTLS(), tcpIdle()}
	all = append(all, oneSidedBetweenHosts()...)
	for i := range all {
		all[i].hosts = true
	}
	return all
}

var tcpLibraries = []string{gorun, openMPI, mpich, bareSocket}

const betweenHosts = " One rank on each of two hosts (network namespaces joined by a bridge), pinned to a core of " +
	"its own. The bare socket is one connection that both sides spin on, without any library."

const oneByOne = " It sends each message by itself: a library that sends several at once can be faster."

func tcpLatency() measurement {
	return measurement{
		name: "tcp-latency", title: "Latency between hosts", program: "latency", key: "bytes", sizes: true, seconds: 17,
		quickTime: 5,
		libraries: tcpLibraries,
		about: "Half of a round trip of two ranks that play ping-pong with blocking Send and Recv over TCP." +
			betweenHosts,
		runs:    []arguments{{ranks: 2, args: "-m 1:4194304 --time 0.05", quick: "-m 8:8 --time 0.05"}},
		columns: oneWay(),
	}
}

func tcpBandwidth() measurement {
	m := bandwidth("tcp-bw", "Bandwidth between hosts", "from one rank to another over TCP", 18)
	m.program, m.libraries = "bw", tcpLibraries
	m.about += betweenHosts + oneByOne
	m.runs = []arguments{{ranks: 2, args: "-W 64 -m 1:4194304 --time 0.05"}}
	m.columns[0].digits = 1
	return m
}

func tcpRate() measurement {
	m := messageRate()
	m.name, m.title, m.seconds, m.libraries = "tcp-rate", "Message rate between hosts, one pair", 8, tcpLibraries
	m.about = "Messages a second from one rank to another over TCP, windows of 64." + betweenHosts +
		oneByOne
	m.runs = []arguments{{ranks: 2, args: "-p 1 -W 64 -m 8:8 --time 0.2"}}
	return m
}

func tcpTLS() measurement {
	m := bandwidth("tcp-tls-bw", "Bandwidth between hosts with TLS",
		"from one rank to another over TCP, once encrypted (GORUN_TCP_TLS=1) and once plain", 5)
	m.program, m.libraries, m.rival = "bw", []string{gorunTLS, gorunPlain}, "plain"
	m.runs = []arguments{{ranks: 2, args: "-W 64 -m 65536:4194304 --time 0.1"}}
	return m
}

func tcpIdle() measurement {
	m := idle()
	m.name, m.title, m.seconds = "tcp-idle", "A blocked rank, the other one on another host", 6
	m.about += " The message will come over TCP."
	m.runs = []arguments{{ranks: 2, args: "-i 1"}}
	return m
}
