package pmi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A value of any bytes becomes text of one letter and base64url:
//
//	v<base64url>            the whole value
//	p<count>.<base64url>    the first of count parts; part i is under key.i as bare base64url
//
// so that a reader knows after the first get how many more are to come.

const (
	// MaxPut is the longest value that Put takes.
	MaxPut = 64 << 10
	// partSuffix is what a key may grow by when its value is split: ".9999".
	partSuffix = 5
)

var b64 = base64.RawURLEncoding

// splitValue returns the texts to be stored under key, key.1, key.2 ...; limit is the longest text.
func splitValue(value []byte, limit int) ([]string, error) {
	if len(value) > MaxPut {
		return nil, fmt.Errorf("the value has %d bytes, at most %d are allowed", len(value), MaxPut)
	}
	if limit < 16 {
		return nil, fmt.Errorf("the launcher takes values of %d characters only", limit)
	}
	text := b64.EncodeToString(value)
	if len(text)+1 <= limit {
		return []string{"v" + text}, nil
	}
	room := limit - len("p9999.")
	count := (len(text) + room - 1) / room
	if count > 9999 {
		return nil, fmt.Errorf("the value needs %d keys of %d characters", count, room)
	}
	parts := make([]string, count)
	for i := range parts {
		parts[i] = text[i*room : min((i+1)*room, len(text))]
	}
	parts[0] = "p" + strconv.Itoa(count) + "." + parts[0]
	return parts, nil
}

var errForeignValue = errors.New("the value was not written by this library")

// firstPart takes the text found under the plain key: the base64url in it, and how many parts there are.
func firstPart(text string) (string, int, error) {
	switch {
	case strings.HasPrefix(text, "v"):
		return text[1:], 1, nil
	case strings.HasPrefix(text, "p"):
		digits, rest, ok := strings.Cut(text[1:], ".")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 2 || n > 9999 {
			return "", 0, errForeignValue
		}
		return rest, n, nil
	}
	return "", 0, errForeignValue
}

func decodeValue(text string) ([]byte, error) {
	b, err := b64.DecodeString(text)
	if err != nil {
		return nil, errForeignValue
	}
	return b, nil
}

// checkKey says whether key can be used: it must survive as one token, with room for a part's number.
func checkKey(key string, keyMax int) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key)+partSuffix > keyMax-1:
		return fmt.Errorf("the key %.70q has %d characters, at most %d are allowed", key, len(key), keyMax-1-partSuffix)
	case strings.HasPrefix(key, "PMI_"):
		return fmt.Errorf("the key %q begins with PMI_, which belongs to the launcher", key)
	}
	for _, r := range key {
		if r <= ' ' || r > '~' || r == '=' || r == '\\' {
			return fmt.Errorf("the key %q holds %q; use letters, digits and punctuation other than = and \\", key, r)
		}
	}
	return nil
}
