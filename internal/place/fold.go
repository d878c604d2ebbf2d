package place

import (
	"fmt"
	"strconv"
	"strings"
)

// Fold is the reverse of [Nodelist] for names in any order: names that differ in the number at their end, or before
// their domain, and are numbered one after the other are one n[01-16].
func Fold(names []string) string {
	var out []string
	for i := 0; i < len(names); {
		head, number, tail := numbered(names[i])
		end := i + 1
		for end < len(names) && number != "" && names[end] == head+next(number, end-i)+tail {
			end++
		}
		if end-i < 3 {
			end = i + 1
			out = append(out, names[i])
		} else {
			out = append(out, fmt.Sprintf("%s[%s-%s]%s", head, number, next(number, end-1-i), tail))
		}
		i = end
	}
	return strings.Join(out, ",")
}

// numbered cuts a name around the last number before its first dot. An address has none.
func numbered(name string) (head, number, tail string) {
	host, domain, dotted := strings.Cut(name, ".")
	at := strings.LastIndexFunc(host, func(r rune) bool { return r < '0' || r > '9' }) + 1
	if at == 0 || at == len(host) || strings.Contains(name, ":") {
		return name, "", ""
	}
	if dotted {
		tail = "." + domain
	}
	return host[:at], host[at:], tail
}

// next is a number plus by, with as many digits.
func next(number string, by int) string {
	n, err := strconv.Atoi(number)
	if err != nil {
		return number
	}
	return fmt.Sprintf("%0*d", len(number), n+by)
}
